"""
A program for Microsoft's client, which ``drumline azure run`` leads to a server: it prints what it gets back, as JSON.

``WORKSPACE FOLDER``: the folder has ``src/train.py`` and ``data/a.csv``, and gets what is downloaded.
"""

import json
import logging
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from azure.ai.ml import Input, MLClient, Output, command, dsl, load_component
from azure.ai.ml.entities import AmlCompute, Data, Environment, Model
from azure.ai.ml.exceptions import JobException
from azure.ai.ml.sweep import Choice
from azure.core.exceptions import ResourceNotFoundError
from azure.identity import DefaultAzureCredential

WORKSPACE, FOLDER = sys.argv[1:]
CURATED = "AzureML-sklearn-1.0-ubuntu20.04-py38-cpu@latest"
ENDED = ("Completed", "Failed", "Canceled")

logging.getLogger("azure.ai.ml").setLevel(logging.ERROR)
ml = MLClient(DefaultAzureCredential(), "subscription", "group", WORKSPACE)
found = {}


def word(status):
    return str(getattr(status, "value", status))


def await_end(name):
    while word(ml.jobs.get(name).status) not in ENDED:
        time.sleep(0.2)
    return ml.jobs.get(name)


def list_files(folder):
    return sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*") if path.is_file())


def make_job(words, **fields):
    return command(command=words, environment=CURATED, compute="cpu-cluster", **fields)


def assets():
    ml.data.create_or_update(
        Data(name="numbers", version="1", path="data", type="uri_folder", tags={"a": "b"})
    )
    ml.environments.create_or_update(Environment(name="mine", image="python:3.11"))
    ml.models.create_or_update(Model(name="weights", path="data"))
    ml.models.download("weights", "1", download_path="model")
    found["assets"] = [
        ml.data.get("numbers", label="latest").tags, [one.name for one in ml.data.list()],
        ml.environments.get("mine", label="latest").image, list_files("model"),
    ]  # fmt: skip
    made = ml.compute.begin_create_or_update(AmlCompute(name="cpu2", size="local", max_instances=2)).result()
    found["computes"] = [made.name, ml.compute.get("cpu-cluster").name, len(list(ml.compute.list_sizes()))]


def one_job():
    words = "python train.py ${{inputs.x}} ${{inputs.d}} && echo done > ${{outputs.o}}/f.txt"
    inputs = {"x": 3, "d": Input(type="uri_folder", path="azureml:numbers:1")}
    ranks = {"type": "pytorch", "process_count_per_instance": 2}
    job = make_job(
        words, code="./src", inputs=inputs, outputs={"o": Output(type="uri_folder")}, tags={"k": "v"},
        distribution=ranks, instance_count=2, experiment_name="first",
    )  # fmt: skip
    job = ml.jobs.create_or_update(job)
    ml.jobs.stream(job.name)
    ml.jobs.download(job.name, download_path="whole", all=True)
    fetched = ml.jobs.get(job.name)
    found["job"] = [word(fetched.status), fetched.tags, list_files("whole/named-outputs")]
    found["outputs"] = [path for path in list_files("whole/artifacts") if path.startswith("outputs")]
    found["tagged"] = [one.name == job.name for one in ml.jobs.list(tag="k")]
    fetched.display_name = "renamed"
    found["renamed"] = ml.jobs.create_or_update(fetched).display_name
    ml.jobs.archive(job.name)
    found["archived"] = job.name not in [one.name for one in ml.jobs.list()]
    fetched = ml.jobs.get(job.name)
    fetched.name = f"{job.name}_again"
    found["again"] = word(await_end(ml.jobs.create_or_update(fetched).name).status)


def ends():
    failed = ml.jobs.create_or_update(make_job("exit 3"))
    try:
        ml.jobs.stream(failed.name)
    except JobException as error:
        found["failed"] = str(error)
    script = ml.jobs.create_or_update(make_job("./run.sh", code="./src"))
    found["script"] = word(await_end(script.name).status)
    long = ml.jobs.create_or_update(make_job("sleep 1000"))
    ml.jobs.begin_cancel(long.name).result()
    found["canceled"] = word(ml.jobs.get(long.name).status)
    try:
        ml.jobs.get("nothing")
    except ResourceNotFoundError as error:
        found["nothing"] = str(error)


def pipeline():
    count = load_component("count.yml")
    report = make_job("cat ${{inputs.m}}/m.txt", inputs={"m": Input(type="uri_folder")})

    @dsl.pipeline(compute="cpu-cluster")
    def both(x):
        counted = count(x=x)
        report(m=counted.outputs.o)
        return {"final": counted.outputs.o}

    job = await_end(ml.jobs.create_or_update(both(x=5), experiment_name="pipes").name)
    children = [word(child.status) for child in ml.jobs.list(parent_job_name=job.name)]
    ml.jobs.download(job.name, download_path="piped", output_name="final")
    found["pipeline"] = [word(job.status), sorted(job.jobs), children, list_files("piped")]


def sweep():
    trial = make_job("python trial.py ${{inputs.lr}}", code="./src", inputs={"lr": 0.5})
    job = trial(lr=Choice([0.5, 0.1])).sweep(
        compute="cpu-cluster", primary_metric="loss", goal="Minimize", sampling_algorithm="grid"
    )
    job.set_limits(max_total_trials=2, max_concurrent_trials=2, timeout=600)
    job = await_end(ml.jobs.create_or_update(job).name)
    found["sweep"] = [word(job.status), len(list(ml.jobs.list(parent_job_name=job.name)))]


def many():
    def submit(number):
        own = MLClient(DefaultAzureCredential(), "subscription", "group", WORKSPACE)
        return own.jobs.create_or_update(make_job(f"echo {number}", name=f"many_{number}")).name

    with ThreadPoolExecutor(20) as pool:
        names = list(pool.map(submit, range(20)))
    found["many"] = sorted({word(await_end(name).status) for name in names})


for scene in (assets, one_job, ends, pipeline, sweep, many):
    scene()
Path(FOLDER, "found.json").write_text(json.dumps(found))
