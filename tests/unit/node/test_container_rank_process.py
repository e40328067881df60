"""What a rank's process in front of a container finds out, and whom it tells to end."""

import json
import os
import shlex
import subprocess
import sys

import pytest
from waiting import wait_until

from drumline.linux import descendants
from drumline.node import hook_folder
from drumline.node.containers import rank_containers, rank_process


def test_what_links_lead_to_is_mounted_too_and_nothing_twice(tmp_path, monkeypatch):
    for name in ("run/inputs", "cache/tree", "run/code"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "run/inputs/digits").symlink_to(tmp_path / "cache/tree")
    monkeypatch.delenv("TMPDIR", raising=False)
    paths = [f"{tmp_path}/{name}" for name in ("run", "run/inputs/digits", "not-there")]
    told = {"mounts": paths, "state": "", "cwd": f"{tmp_path}/run/code", "hook": ""}
    assert rank_containers.list_mounts(told) == (f"{tmp_path}/cache/tree", f"{tmp_path}/run")


SAVES = "import signal, time; signal.signal(signal.SIGTERM, lambda *_: 0); print('ready', flush=True); time.sleep(100)"


def test_a_shell_is_told_after_what_it_has_started():
    command = f'{shlex.quote(sys.executable)} -c "{SAVES}"; true'
    with subprocess.Popen(
        ["/bin/bash", "-c", command], stdout=subprocess.PIPE, start_new_session=True
    ) as shell:
        try:
            assert shell.stdout is not None
            assert shell.stdout.readline() == b"ready\n"
            (python,) = descendants.list_children(shell.pid)
            assert rank_process.choose_told_first(shell.pid) == ([python], True)
            assert rank_process.choose_told_first(python) == ([python], False)
        finally:
            os.killpg(shell.pid, 9)


def test_a_shell_with_a_trap_is_told_with_it():
    command = "trap 'echo told' TERM; echo ready; sleep 100"
    with subprocess.Popen(
        ["/bin/bash", "-c", command], stdout=subprocess.PIPE, start_new_session=True
    ) as shell:
        try:
            assert shell.stdout is not None
            assert shell.stdout.readline() == b"ready\n"
            wait_until(lambda: descendants.list_children(shell.pid))
            told, later = rank_process.choose_told_first(shell.pid)
            assert sorted(told) == sorted([shell.pid, *descendants.list_children(shell.pid)])
            assert not later
        finally:
            os.killpg(shell.pid, 9)


def test_notes_are_those_of_the_ranks_own_process():
    line = json.dumps({"at": 1.5, "pid": 70, "parent": 71}).encode()
    assert json.loads(rank_process._rename_author(line, 70)) == {"at": 1.5, "pid": os.getpid(), "parent": 71}
    assert json.loads(rank_process._rename_author(line, 71)) == {"at": 1.5, "pid": 70, "parent": os.getpid()}


CONTAINER = {"kind": "podman", "image": "i:1", "pull": "never", "mounts": [], "shm_bytes": 0, "arguments": []}


def test_the_rank_gets_its_own_variables_and_the_client_the_machines(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", "/machine")
    monkeypatch.setenv("OTHER", "of the machine")
    secret = dict.fromkeys(
        ("DOCKER_PASSWORD", "CONTAINER_PASSPHRASE", "XDG_TOKEN", "CONTAINERS_X", "HOME"), "secret"
    )
    variables = {
        **os.environ,
        **secret,
        "PATH": "/jobs",
        "RANK": "1",
        "PYTHONPATH": f"{hook_folder.HOOK}:/machine",
    }
    argv, env = rank_containers.wrap_command(
        CONTAINER, ["/bin/bash"], variables, ["RANK"], "/cwd", str(tmp_path)
    )
    assert argv[:3] == [sys.executable, "-I", "-S"]
    assert argv[-1] == "/bin/bash"
    assert "secret" not in " ".join(argv)
    told = json.loads(argv[4])
    assert {"RANK", "PATH"} <= set(told["names"])
    assert not {"OTHER", "PYTHONPATH"} & set(told["names"])
    assert ("PATH" in told["set"], told["hook"]) == (True, hook_folder.HOOK)
    assert (env["PATH"], env["RANK"], env["DRUMLINE_APART_PATH"]) == ("/machine", "1", "/jobs")


@pytest.mark.parametrize("text", ["", "12", "-1\n", "x\n", "12 13\n"])
def test_only_a_whole_number_is_believed(tmp_path, text):
    (tmp_path / "pid-1").write_text(text)
    assert rank_containers.read_number(str(tmp_path / "pid-1")) == 0
    (tmp_path / "pid-1").write_text("12\n")
    assert rank_containers.read_number(str(tmp_path / "pid-1")) == 12
    (tmp_path / "link").symlink_to(tmp_path / "pid-1")
    assert rank_containers.read_number(str(tmp_path / "link")) == 0


def test_only_names_of_ours_are_given_to_an_engine(tmp_path, monkeypatch):
    folder = tmp_path / "containers"
    folder.mkdir()
    ours = [f"drumline-{number:016x}" for number in range(2)]
    for name, kind in ((ours[0], "podman"), (ours[1], "sh"), ("--all", "podman"), ("pid-1", "7\n")):
        (folder / name).write_text(kind)
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    (bin_folder / "podman").write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/called\n')
    (bin_folder / "podman").chmod(0o755)
    monkeypatch.setenv("PATH", str(bin_folder))
    rank_containers.remove_containers(str(tmp_path))
    assert (tmp_path / "called").read_text() == f"rm --force --ignore --time 0 {ours[0]}\n"
    rank_containers.remove_containers(str(tmp_path / "nothing"))
