"""The snippets of docs/howto/azure-sdk-objects.md, as they stand there."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

TEXT = (Path(__file__).parents[3] / "docs" / "howto" / "azure-sdk-objects.md").read_text()
OBJECTS, STEPS, FLOW = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


@pytest.fixture
def run(tmp_path):
    files = {"src/train.py": "print('trained')", "src/steps.py": STEPS, "data/a.txt": "a"}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)

    def to_end(script):
        (tmp_path / "script.py").write_text(script)
        environment = {**os.environ, "PYTHONPATH": str(tmp_path / "src")}
        done = subprocess.run(
            [sys.executable, "script.py"], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return to_end


def test_a_job_of_azure_ai_ml(run):
    pytest.importorskip("azure.identity", reason="azure-ai-ml (96 MB with its dependencies) is not installed")
    assert run(OBJECTS).count("trained") == 4


@pytest.mark.skipif(
    find_spec("mldesigner") is None, reason="mldesigner (4 MB with what it needs) is not installed"
)
def test_a_function_under_command_component(run, drumline_home):
    assert "1 step completed" in run(FLOW)
    written = list(drumline_home.rglob("named-outputs/model/epochs"))  # the step's, and so the pipeline's
    assert {file.read_text() for file in written} == {"5"}
