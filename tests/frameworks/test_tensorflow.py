"""What TensorFlow's own reader makes of TF_CONFIG, in every task that there is."""

import json
import re

import pytest
from frameworks.conftest import skip_without

pytestmark = pytest.mark.timeout(200)

PROBE = """
import json, os, sys, time
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf
resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
task = f"{resolver.task_type} {resolver.task_id}"
seen = {"cluster": resolver.cluster_spec().as_dict(), "TF_CONFIG": json.loads(os.environ["TF_CONFIG"])}
with open(os.path.join(sys.argv[1], task + ".new"), "w") as file:
    json.dump(seen, file)
os.rename(file.name, os.path.join(sys.argv[1], task))
# Whoever is not waited for would be ended before it has looked.
while sum(not name.endswith(".new") for name in os.listdir(sys.argv[1])) < int(sys.argv[2]):
    time.sleep(0.05)
"""

TRAIN = """
import os, time
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf

def read():
    for _ in range(400):
        time.sleep(0.03)
        yield tf.ones((8, 16))

batches = tf.data.Dataset.from_generator(read, output_signature=tf.TensorSpec((8, 16)))
weights = tf.Variable(tf.ones((16, 1)))

@tf.function
def step(batch):
    weights.assign_sub(0.01 * tf.matmul(batch, batch @ weights, transpose_a=True))

for batch in batches:
    step(batch)
"""

TASKS = ["chief 0", "evaluator 0", "ps 0", "ps 1", "worker 0", "worker 1"]


def test_the_resolver_sees_each_task_and_one_cluster(tmp_path, run_in):
    skip_without("tensorflow", "tensorflow-cpu")
    seen_folder = tmp_path / "seen"
    seen_folder.mkdir()
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "probe.py").write_text(PROBE)
    job = {
        "code": "src",
        "command": f"python probe.py '{seen_folder}' {len(TASKS)}",
        "distribution": {"type": "tensorflow", "worker_count": 2, "parameter_server_count": 2},
        "resources": {"instance_count": 2},
        "drumline": {"chief": True, "evaluator": True},
    }
    (tmp_path / "job.yml").write_text(json.dumps(job))
    done = run_in("tensorflow", tmp_path, "-m", "drumline", "job", "create", "-f", "job.yml", "--stream")
    assert done.rc == 0, done.out + done.err
    assert sorted(path.name for path in seen_folder.iterdir()) == TASKS
    seen = {task: json.loads((seen_folder / task).read_text()) for task in TASKS}
    cluster = seen["chief 0"]["cluster"]
    assert {role: len(tasks) for role, tasks in cluster.items()} == {"chief": 1, "ps": 2, "worker": 2}
    assert len({address for tasks in cluster.values() for address in tasks}) == 5
    for task, view in seen.items():
        role, index = task.split()
        assert view["cluster"] == view["TF_CONFIG"]["cluster"] == cluster
        assert view["TF_CONFIG"]["task"] == {"type": role, "index": int(index)}
    assert "the chief ended with exit code 0" in done.out


def test_stacks_tell_that_a_training_waits_for_its_input(tmp_path, run_in, drumline_home):
    skip_without("tensorflow", "tensorflow-cpu")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text(TRAIN)
    job = {"name": "job", "code": "src", "command": "python train.py"}
    (tmp_path / "job.yml").write_text(json.dumps(job))
    done = run_in("tensorflow", tmp_path, "-m", "drumline", "job", "create", "-f", "job.yml", "--stream")
    assert done.rc == 0, done.out + done.err
    shown = run_in("tensorflow", tmp_path, "-m", "drumline", "job", "show", "-n", "job", "-o", "table").out
    found = re.search(r"input (\d+) %, .*\(by \d+ looks at stacks\)", shown)
    assert found, shown
    assert int(found[1]) > 60
