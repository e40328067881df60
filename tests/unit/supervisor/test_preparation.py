"""What a process that brings data in, or makes an environment, says, and what it does not mean to say."""

import os

import planning
import pytest

from drumline.contract import events as e
from drumline.contract.errors import NodeError
from drumline.contract.folder import RunFolder
from drumline.supervisor.helpers.preparation import HelperProcesses


@pytest.fixture
def hear(tmp_path, monkeypatch):
    """The events after a program's output."""

    def run(program):
        (tmp_path / "said.py").write_text(program)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        folder = RunFolder(str(tmp_path / "job"))
        folder.create()
        helpers = HelperProcesses(folder, planning.plan())
        reader, writer = os.pipe()
        try:
            helpers.start("a test", "said")
            assert helpers.wait(lambda: False, reader)
        finally:
            helpers.end()
            os.close(reader)
            os.close(writer)
        return list(folder.read_events())

    return run


def test_what_a_library_prints_is_no_event_and_no_error(hear):
    ready = '{"type": "ready", "digest": "d", "prefix": "/p", "seconds": 1.0, "reused": false}'
    events = hear(f"print('a library was loaded')\nprint([1])\nprint('{ready}')\n")
    assert [type(event) for event in events] == [e.EnvironmentReady]


def test_an_error_has_its_words(hear):
    failed = '{"type": "failed", "message": "no such file", "hint": "look"}'
    with pytest.raises(NodeError, match=r"no such file \(look\)"):
        hear(f"import sys\nprint('{failed}')\nsys.exit(1)\n")
