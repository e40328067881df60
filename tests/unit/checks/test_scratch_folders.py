"""Scratch folders of killed agents: which are nobody's, by real processes and by a made /proc."""

import os
import subprocess
import sys
import time

import pytest

from drumline.checks import orphans
from drumline.control.upkeep import machine_doctor

NAME = "drumline-0123abcd-n7"


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "tmp" / NAME
    path.mkdir(parents=True, mode=0o700)
    return path


@pytest.fixture
def proc(tmp_path):
    """A machine on which one process runs that uses nothing."""
    made = tmp_path / "proc"
    (made / "self" / "ns").mkdir(parents=True)
    (made / "self" / "ns" / "pid").symlink_to("pid:[4026531836]")
    (made / "uptime").write_text("5000.00 9000.00\n")
    add_process(made, 1, "init")
    return made


def add_process(proc, pid, name, started_s=0.0, **more):
    place = proc / str(pid)
    (place / "fd").mkdir(parents=True)
    (place / "comm").write_text(name[:15])
    ticks = int(started_s * os.sysconf("SC_CLK_TCK"))
    (place / "stat").write_text(f"{pid} ({name}) S " + "0 " * 18 + f"{ticks} 0\n")
    (place / "environ").write_bytes(more.get("environ", b"HOME=/root\0"))
    (place / "cwd").symlink_to(more.get("cwd", "/"))
    (place / "fd" / "3").symlink_to(more.get("file", "/dev/null"))


def is_forgotten(folder, proc="/proc", hours=2.0):
    return orphans.list_forgotten([str(folder)], time.time() + hours * 3600, str(proc)) == [str(folder)]


def test_an_old_folder_that_no_process_knows_is_forgotten(folder, proc):
    assert is_forgotten(folder, proc)
    assert not is_forgotten(folder, proc, hours=0.9)


def test_a_folder_that_a_lock_tells_of_or_that_is_none_of_ours_is_not(folder, proc):
    (folder / "agent").touch()
    assert not is_forgotten(folder, proc)
    for name in ("drumline-0123abcd", "drumline-notes-n1"):
        other = folder.with_name(name)
        other.mkdir()
        assert not is_forgotten(other, proc)
    link = folder.with_name("drumline-0123abce-n7")
    link.symlink_to(proc)
    assert not is_forgotten(link, proc)


@pytest.mark.parametrize("use", ["environ", "cwd", "file"])
def test_a_folder_that_a_process_uses_is_not_forgotten(folder, proc, use):
    texts = {"environ": f"TMPDIR={folder}/tmp\0".encode(), "cwd": f"{folder}/below", "file": f"{folder}/data"}
    add_process(proc, 20, "python", **{use: texts[use]})
    assert not is_forgotten(folder, proc)


@pytest.mark.parametrize(
    ("name", "started_s", "expected"),
    [
        ("drumline-node-7", 4990.0, False),
        ("drumline-node-71", 4000.0, False),
        ("drumline-node-6", 4990.0, True),
        ("drumline-job", 4990.0, True),
    ],
)
def test_an_agent_of_that_node_may_hold_what_was_changed_since_it_started(
    folder, proc, name, started_s, expected
):
    add_process(proc, 30, name, started_s)
    assert is_forgotten(folder, proc) is expected


def test_an_agent_that_started_long_after_the_folder_was_changed_has_another(folder, proc):
    # As if the machine had been up since two hours before.
    (proc / "uptime").write_text("0.00 0.00\n")
    add_process(proc, 30, "drumline-node-7", 600.0)
    assert is_forgotten(folder, proc)


def test_where_not_all_processes_show_nothing_is_forgotten(folder, proc):
    namespace = proc / "self" / "ns" / "pid"
    namespace.unlink()
    namespace.symlink_to("pid:[4026532000]")
    assert not is_forgotten(folder, proc)


def test_a_real_process_with_the_folder_among_its_variables_uses_it(folder):
    program = [sys.executable, "-c", "print('up', flush=True); import sys; sys.stdin.read()"]
    with subprocess.Popen(
        program, env={**os.environ, "TMPDIR": str(folder)}, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        process.stdout.readline()
        assert not is_forgotten(folder)
        process.stdin.close()


def test_the_doctor_finds_and_removes_it(folder, proc, monkeypatch, drumline_home):
    (folder / "tmp").mkdir()
    (folder / "tmp" / "closed").mkdir(mode=0)
    real = orphans.list_forgotten
    later = time.time() + 7200.0
    monkeypatch.setattr(orphans, "list_forgotten", lambda paths, _: real(paths, later, str(proc)))
    monkeypatch.setenv("TMPDIR", str(folder.parent))
    assert orphans.gather_leftovers({"home": drumline_home}).folders == [str(folder)]
    assert machine_doctor._fix_leftovers() == "ended 0 processes, removed 1 folder"
    assert not folder.exists()
