"""Notebooks, run by a real kernel: the page of the docs, an error, an interrupt, and Azure's example of two jobs."""

import json
import re
import shlex
import sys
import tarfile
from pathlib import Path
from textwrap import dedent

import pytest
from notebooks import start_notebook

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "howto" / "notebooks.md"

LONG_JOB = """
job = command(name="long", command="echo started; exec sleep 1000", distribution={"type": "pytorch"})
ml_client.jobs.create_or_update(job)
ml_client.jobs.stream("long")
"""

ENVIRONMENT = """
import os, sys
names = ("MPLBACKEND", "FORCE_COLOR", "JPY_PARENT_PID", "PYDEVD_USE_FRAME_EVAL", "PAGER", "OF_THE_NOTEBOOK")
print([os.environ.get(name) for name in names])
"""


@pytest.fixture
def notebook(tmp_path, monkeypatch):
    for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("PAGER", "more")
    for name in ("MPLBACKEND", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "work"
    folder.mkdir()
    with start_notebook(folder) as started:
        yield started


def test_the_cells_of_the_docs_an_error_and_an_interrupt(notebook, tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    cells = [notebook.run(block) for block in blocks]
    assert [cell.traceback for cell in cells] == [[]] * len(cells)
    live, shown = (
        next(cell for cell in cells if cell.displays),
        next(cell for cell in cells if "text/html" in cell.result),
    )
    (pages,) = live.displays.values()
    assert len(pages) > 2
    assert "rank 3 is done" in live.html
    for page in (live.html, shown.html):
        assert page.count("on node 1: done") == 2
        assert "Completed" in page
        assert "█" in page
    metrics, asked, compared = cells[-3:]
    assert "<th>metric</th>" in metrics.result["text/html"]
    assert asked.text == "rank 0 is done\n\n"
    assert asked.result["text/plain"] == "'Completed'"
    assert ">resources.instance_count<" in compared.result["text/html"]
    assert ">second<" in compared.result["text/html"]

    wrong = notebook.run("# a\nx = 1\njob = command(command='x', instance_cuont=2)\n")
    assert "\n".join(wrong.traceback) == (
        "SpecError: unknown keyword 'instance_cuont'\n      hint: did you mean 'instance_count'?\n"
        "line 3: job = command(command='x', instance_cuont=2)"
    )
    notebook.run("%env DRUMLINE_DEBUG=1")
    assert "refuse_unknown" in "\n".join(notebook.run("command(command='x', instance_cuont=2)").traceback)
    notebook.run("%env DRUMLINE_DEBUG=0")

    cut = notebook.run(LONG_JOB, interrupt_when=lambda cell: "started" in cell.html)
    assert cut.is_ok
    assert cut.text == "job long is still running; to stop it: ml_client.jobs.begin_cancel('long')\n"
    assert cut.errors == ""
    again = notebook.run(
        # Some time after it has begun to wait: an interrupt before that is one of the cell's own.
        "import threading\nthreading.Timer(2.0, print, (1,), {'flush': True}).start()\n"
        "ml_client.jobs.wait('long')",
        interrupt_when=lambda cell: cell.text,
    )
    assert again.traceback == [cut.text.strip()]
    ended = notebook.run("ml_client.jobs.begin_cancel('long').result()\nml_client.jobs.get('long').status")
    assert ended.result["text/plain"] == "'Canceled'"
    assert "long" in notebook.run("ml_client.jobs.list()").html

    (tmp_path / "work" / "seen.py").write_text(ENVIRONMENT)
    notebook.run("%env OF_THE_NOTEBOOK=yes")
    failing = "command(code='seen.py', command='python seen.py; exit 3', distribution={'type': 'pytorch'})"
    failed = notebook.run(
        f"returned = ml_client.create_or_update({failing})\nml_client.jobs.stream(returned.name)"
    )
    seen = "[None, None, None, None, 'more', 'yes']"
    assert seen.replace("'", "&#x27;") in failed.html
    for command in ("run -- python seen.py", "job create -f seen.yml --stream"):
        (tmp_path / "work" / "seen.yml").write_text(json.dumps({"command": "python seen.py", "code": "."}))
        shown = notebook.run(f"!{shlex.quote(sys.executable)} -m drumline {command}")
        assert seen in shown.text, shown.text
    assert re.fullmatch(
        r"JobFailedError: job \w+ failed: rank 0 on node 0 failed .*: exit code 3.*",
        failed.traceback[0].split("\n")[0],
    )


AZURES_CELLS = (
    """
    from drumline.identity import DefaultAzureCredential, InteractiveBrowserCredential

    from drumline import MLClient, Input
    from drumline.dsl import pipeline
    from drumline import load_component
    """,
    """
    try:
        credential = DefaultAzureCredential()
        credential.get_token("https://management.azure.com/.default")
    except Exception as ex:
        credential = InteractiveBrowserCredential()
    """,
    """
    ml_client = MLClient.from_config(credential=credential)
    workspace = ml_client.workspace_name
    subscription_id = ml_client.workspaces.get(workspace).id.split("/")[2]
    resource_group = ml_client.workspaces.get(workspace).resource_group
    """,
    """
    from drumline import Output, command
    from drumline.constants import AssetTypes

    store = (
        f"azureml://subscriptions/{subscription_id}/resourcegroups/{resource_group}/workspaces/{workspace}"
        "/datastores/workspaceblobstore/paths/numbers"
    )
    job = command(
        code="./src",
        command="python unpack.py --input_data ${{inputs.archive}} --output_folder ${{outputs.numbers}}",
        inputs={"archive": Input(type=AssetTypes.URI_FILE, path="numbers.tar.gz")},
        outputs={"numbers": Output(type=AssetTypes.URI_FOLDER, path=store)},
        environment="AzureML-sklearn-0.24-ubuntu18.04-py37-cpu:9",
        compute="cpu-cluster",
    )
    returned_job = ml_client.jobs.create_or_update(job)
    returned_job.services["Studio"].endpoint
    """,
    """
    print(returned_job.name)
    print(returned_job.experiment_name)
    print(returned_job.outputs["numbers"])
    print(returned_job.outputs["numbers"]["path"])
    """,
    "ml_client.jobs.stream(returned_job.name)",
    """
    for i in ml_client.jobs.list():
        if i.name == returned_job.name:
            status_datajob = i.status
    """,
    """
    job = command(
        code="./src",
        command="python sum.py --data-dir ${{inputs.numbers}} --epochs ${{inputs.epoch}} --model-dir ${{inputs.out}}",
        inputs={
            "numbers": Input(type=AssetTypes.URI_FOLDER, path=returned_job.outputs["numbers"]["path"]),
            "epoch": 1,
            "out": "./outputs",
        },
        environment="azureml:AzureML-pytorch-1.9-ubuntu18.04-py37-cuda11-gpu:6",
        compute="gpu-cluster-V100",
        instance_count=2,
        distribution={"type": "PyTorch", "process_count_per_instance": 1},
    )
    """,
    """
    if status_datajob == "Completed":
        returned_job1 = ml_client.jobs.create_or_update(job)
    """,
    "ml_client.jobs.stream(returned_job1.name)",
    "returned_job1",
)
"""The calls of Azure's example of distributed training on CIFAR-10, a cell each, with numbers in place of images."""

UNPACK = """
import argparse, tarfile
parser = argparse.ArgumentParser()
parser.add_argument("--input_data")
parser.add_argument("--output_folder")
given = parser.parse_args()
with tarfile.open(given.input_data) as archive:
    # Python 3.11.4 and newer have filters.
    archive.extractall(given.output_folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
"""
SUM = """
import argparse, os, pathlib
parser = argparse.ArgumentParser()
for name in ("--data-dir", "--epochs", "--model-dir"):
    parser.add_argument(name)
given = parser.parse_args()
numbers = [int(word) for word in (pathlib.Path(given.data_dir) / "numbers.txt").read_text().split()]
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
print("sum", rank, sum(numbers[rank::size]))
"""


def test_azures_example_of_two_jobs(notebook, tmp_path):
    work = tmp_path / "work"
    (work / "src").mkdir()
    (work / "src" / "unpack.py").write_text(UNPACK)
    (work / "src" / "sum.py").write_text(SUM)
    (work / "numbers.txt").write_text(" ".join(map(str, range(101))))
    with tarfile.open(work / "numbers.tar.gz", "w:gz") as archive:
        archive.add(work / "numbers.txt", "numbers.txt")
    names = {"subscription_id": "s", "resource_group": "team", "workspace_name": "vision"}
    (work / "config.json").write_text(json.dumps(names))
    cells = [notebook.run(dedent(cell)) for cell in AZURES_CELLS]
    assert [cell.traceback for cell in cells] == [[]] * len(cells)
    assert "sum 0 2550" in cells[-2].html
    assert "sum 1 2500" in cells[-2].html
    assert "on node 1: done" in cells[-1].html
