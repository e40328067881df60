"""Microsoft's own client, unmodified, under ``drumline azure run``: what users do with it, from upload to download."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from frameworks.conftest import PYTHONS
from frameworks.test_azure_client import ENVIRONMENT, check_environment

PROGRAM = Path(__file__).parent / "azure_scenes.py"
TRAIN = """\
import os
import sys

print("rank", os.environ.get("RANK", "0"), "of", os.environ.get("WORLD_SIZE", "1"), os.listdir(sys.argv[2]))
os.makedirs("outputs", exist_ok=True)
with open("outputs/model.txt", "w") as file:
    file.write(sys.argv[1])
"""
TRIAL = """\
import sys

from azureml.core import Run

Run.get_context().log("loss", float(sys.argv[1]))
"""
COUNT = """\
$schema: https://azuremlschemas.azureedge.net/latest/commandComponent.schema.json
name: count
type: command
inputs: {x: {type: number, default: 1}}
outputs: {o: {type: uri_folder}}
environment: azureml:AzureML-sklearn-1.0-ubuntu20.04-py38-cpu@latest
command: echo ${{inputs.x}} > ${{outputs.o}}/m.txt
"""


@pytest.mark.timeout(400)
def test_what_users_do_with_it(tmp_path):
    check_environment()
    for name, text in {
        "src/train.py": TRAIN,
        "src/trial.py": TRIAL,
        "data/a.csv": "a,b\n",
        "count.yml": COUNT,
    }.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    (tmp_path / "src" / "run.sh").write_text("#!/bin/sh\necho started\n")
    (tmp_path / "src" / "run.sh").chmod(0o755)
    words = [sys.executable, "-P", "-m", "drumline", "azure", "run", "--", PYTHONS[ENVIRONMENT], str(PROGRAM)]
    done = subprocess.run(
        [*words, "team", str(tmp_path)], cwd=tmp_path, capture_output=True, text=True, timeout=360,
        env={**os.environ, "AZUREML_RUN_POLLING_INTERVAL_MIN": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert "rank 0 of 4 ['a.csv']" in done.stdout
    found = json.loads((tmp_path / "found.json").read_text())
    failed = found.pop("failed")
    nothing = found.pop("nothing")
    assert "rank 0 on node 0 failed" in failed
    assert "there is no job 'nothing'" in nothing
    assert found == {
        "assets": [{"a": "b"}, ["numbers"], "python:3.11", ["weights/data/a.csv"]],
        "computes": ["cpu2", "cpu-cluster", 1],
        "job": ["Completed", {"k": "v"}, ["o/f.txt"]],
        "outputs": ["outputs/model.txt"],
        "tagged": [True],
        "renamed": "renamed",
        "archived": True,
        "again": "Completed",
        "script": "Completed",
        "canceled": "Canceled",
        "pipeline": [
            "Completed",
            ["azureml_anonymous", "counted"],
            ["Completed"] * 2,
            ["named-outputs/final/m.txt"],
        ],
        "sweep": ["Completed", 2],
        "many": ["Completed"],
    }
