"""Where an input can be mounted, by the rights of this process."""

import stat

import pytest

from drumline.linux import mounts
from drumline.staging.mount import choice

ALL, NONE, DOCKER = "000001ffffffffff", "0000000000000000", "00000000a80425fb"


@pytest.mark.parametrize(
    ("effective", "bounding", "no_new", "may"),
    [
        (ALL, ALL, "0", True),
        (NONE, ALL, "0", True),
        (NONE, ALL, "1", False),
        # In a default container: root and its fusermount3 alike have the rights that Docker leaves them.
        (DOCKER, DOCKER, "0", False),
        (NONE, DOCKER, "0", False),
    ],
)
def test_who_may_mount(monkeypatch, tmp_path, effective, bounding, no_new, may):
    program = tmp_path / "fusermount3"
    program.touch()
    program.chmod(stat.S_ISUID | 0o755)
    monkeypatch.setattr(mounts, "find_unmount_program", lambda: str(program))
    facts = {"CapEff": effective, "CapBnd": bounding, "NoNewPrivs": no_new}
    monkeypatch.setattr(choice, "_status", lambda: facts)
    assert choice._may_mount() == may
