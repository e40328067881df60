"""The logs of thousands of ranks, followed by a process that may have few open files."""

import os
import resource
import subprocess
import sys

import pytest

from drumline.control.logs import rank_log

FOLLOW = """
import sys
from planning import plan
from drumline.contract.folder import RunFolder
from drumline.control.logs.follow import Follower

planned = plan(nodes=75, distribution={"type": "pytorch", "process_count_per_instance": 8})
follower = Follower(RunFolder(sys.argv[1]), planned)
print(sum(len(block.lines.splitlines()) for block in follower._round()))
"""


def test_a_process_with_few_open_files_follows_more_logs_than_those(tmp_path):
    logs = tmp_path / "user_logs"
    logs.mkdir()
    for rank in range(600):
        (logs / f"std_log_process_{rank:02d}.txt").write_text("one line\n")
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and hard < 1000:
        pytest.skip(f"this process may not have more than {hard} open files")
    done = subprocess.run(
        [sys.executable, "-c", FOLLOW, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (300, hard)),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.stdout, done.returncode) == ("600\n", 0), done.stderr


def test_a_folder_of_many_logs_is_read_once_while_it_does_not_change(tmp_path, monkeypatch):
    read = []
    listdir = os.listdir
    monkeypatch.setattr(os, "listdir", lambda folder: read.append(folder) or listdir(folder))
    paths = [str(tmp_path / f"std_log_process_{rank:02d}.txt") for rank in range(8)]
    (tmp_path / "attempt-0").mkdir()
    os.utime(tmp_path, (1e9, 1e9))
    assert [rank_log.list_earlier(path)[0][0] for path in paths] == [0] * 8
    assert read == [str(tmp_path)]
    (tmp_path / "attempt-1").mkdir()
    assert [number for number, _ in rank_log.list_earlier(paths[0])] == [0, 1]


def test_a_folder_that_has_just_changed_is_read_again(tmp_path):
    """Two changes within a tick of the kernel's clock leave the same time."""
    path = str(tmp_path / "std_log.txt")
    (tmp_path / "attempt-0").mkdir()
    assert [number for number, _ in rank_log.list_earlier(path)] == [0]
    before = tmp_path.stat()
    (tmp_path / "attempt-1").mkdir()
    os.utime(tmp_path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert [number for number, _ in rank_log.list_earlier(path)] == [0, 1]
