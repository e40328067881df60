"""An API server of the test's own, and the run folder of a job that was submitted to Kubernetes."""

import pytest
from api_server import Server
from planning import plan

from drumline.contract import events as e
from drumline.contract.folder import RunFolder


@pytest.fixture
def server():
    made = Server()
    yield made
    made.close()


@pytest.fixture
def folder(tmp_path):
    made = RunFolder(str(tmp_path / "jobs" / "calm_drum"))
    made.create()
    made.write(made.plan, plan(2, at={"engine": "kubernetes", "folder": made}).to_json())
    made.begin(e.JobSubmitted(1.0, "ann", "kubernetes"))
    return made
