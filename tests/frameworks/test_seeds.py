"""Training scripts written for Azure ML, submitted as there with nothing but the import lines changed, on two nodes."""

import json
import re
import shutil
from pathlib import Path

import pytest
from frameworks.conftest import path_of, skip_without
from frameworks.table import BASE

from drumline.contract import folder
from drumline.control.facts import description
from drumline.control.jobs import job_folders

pytestmark = pytest.mark.timeout(300)


def submitted(run_in, environment, examples, name):
    """What its submit.py prints, which comes to an end."""
    done = run_in(environment, examples / "azure" / name, "submit.py")
    assert done.rc == 0, done.out[-4000:] + done.err
    return done.out


def reached(text, ranks, least):
    """The accuracy that the training prints at its end is enough."""
    (figure,) = re.findall(rf"test accuracy (0\.\d+) \({ranks}\)", text)
    assert float(figure) >= least


@pytest.fixture(autouse=True)
def at_hand(monkeypatch):
    """PyTorch from the index for each test would be too much: the Python of the tests has what the scripts need."""
    monkeypatch.setenv("DRUMLINE_ENVIRONMENT", "current")


@pytest.fixture
def home(drumline_home):
    """Of the workspace that the scripts name; the test looks at its jobs, and the scripts are told nothing of it."""
    with folder.workspace("examples"):
        yield drumline_home / "workspaces" / "examples"


def test_the_output_of_the_first_cifar_job_feeds_the_second(run_in, examples, home):
    skip_without(BASE, "torch", "numpy")
    text = submitted(run_in, BASE, examples, "cifar-pair")
    reached(text, "2 ranks", 0.7)
    first, second = re.findall(r"^RunId: (\S+)$", text, re.MULTILINE)[::2]
    described = description.show_job(second)
    assert (description.show_job(first)["status"], described["status"]) == (
        "Completed",
        "Completed",
    )
    assert described["resources"]["instance_count"] == 2
    plan = json.loads((home / "jobs" / second / "plan.json").read_text())
    assert Path(plan["user_env"]["AZURE_ML_INPUT_cifar"]) == home / "jobs" / first / "named-outputs" / "cifar"
    assert (home / "jobs" / second / "outputs" / "cifar_net.pt").is_file()


def test_the_component_pipeline_trains_on_two_nodes(run_in, examples, home):
    skip_without(BASE, "torch", "numpy")
    text = submitted(run_in, BASE, examples, "component-pipeline")
    reached(text, "4 ranks", 0.85)
    (name,) = re.findall(r"^(\S+): Completed$", text, re.MULTILINE)
    (step,) = job_folders.names(archived=None, parent=name)
    assert (home / "jobs" / step / "named-outputs" / "model" / "model.pt").is_file()


def test_lightning_below_mpi_logs_what_get_metrics_reads(run_in, examples, home):
    skip_without(BASE, "torch", "lightning")
    if shutil.which("mpirun", path=path_of(BASE)) is None:
        pytest.skip("there is no mpirun, which scripts/test installs as root")
    text = submitted(run_in, BASE, examples, "lightning-mpi")
    reached(text, "2 ranks", 0.85)
    (name,) = re.findall(r"^(\S+): Completed$", text, re.MULTILINE)
    assert (home / "jobs" / name / "outputs" / "model.ckpt").is_file()
    (accuracies,) = re.findall(r"^accuracy: (\[.*\])$", text, re.MULTILINE)
    assert len(json.loads(accuracies)) == 4
    assert "\nranks: 2" in text


def test_the_tensorflow_job_trains_with_tensorflow_itself(run_in, examples, home):
    """What stands for it without TensorFlow: tests/acceptance/test_seeds.py."""
    skip_without("tensorflow", "tensorflow-cpu", "tf_keras")
    text = submitted(run_in, "tensorflow", examples, "tensorflow-mnist")
    reached(text, "2 workers", 0.85)
    (name,) = re.findall(r"^(\S+): Completed$", text, re.MULTILINE)
    assert (home / "jobs" / name / "outputs" / "keras-model" / "saved_model.pb").is_file()
