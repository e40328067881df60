"""A command that is a launcher itself, on one node, and reaches the others by an ssh that is none."""

import json
import os
import signal

import pytest
from cli_jobs import background, write_job

from drumline.control import jobs

ONCE = {
    "distribution": {"type": "pytorch", "process_count_per_instance": 2},
    "resources": {"instance_count": 2},
    "drumline": {"once": True},
}


@pytest.fixture
def once(cli, tmp_path):
    """What a command on node 0 of two prints."""

    def run(command, **fields):
        done = cli(
            "job", "create", "-f", write_job(tmp_path, command, name="job", **{**ONCE, **fields}), "--stream"
        )
        log = jobs.folder_of("job").user_logs + "/std_log.txt"
        with open(log) as file:
            return done.rc, file.read()

    return run


def test_the_command_runs_once_with_a_file_of_hosts(once):
    rc, out = once('cat "$DRUMLINE_HOSTFILE"; env')
    assert rc == 0
    lines = out.splitlines()
    assert lines[:2] == ["127.0.0.1 slots=2", "127.0.0.2 slots=2"]
    names = {line.partition("=")[0] for line in lines}
    assert {"MASTER_ADDR", "MASTER_PORT", "AZ_BATCH_HOST_LIST"} <= names
    assert not {"RANK", "LOCAL_RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID"} & names


def test_ssh_runs_a_command_there_with_its_streams_and_its_code(once):
    rc, out = once(
        "ssh 127.0.0.2 'echo on $AZUREML_CR_NODE_RANK; echo wrong >&2; exit 7' 2>errors; echo code $?; cat errors; "
        "echo given | ssh -p 2222 -o BatchMode=yes ann@127.0.0.2 -- cat; "
        "ssh 127.0.0.2 'kill -9 $$'; echo code $?"
    )
    assert rc == 0
    assert out.splitlines() == ["on 1", "code 7", "wrong", "given", "code 137"]


def test_ssh_loses_nothing_of_a_large_input_and_output(once):
    rc, out = once(
        "ssh 127.0.0.2 'seq 300000' | md5sum; seq 300000 | ssh 127.0.0.2 md5sum; seq 300000 | md5sum"
    )
    assert rc == 0
    assert len(out.splitlines()) == 3
    assert len(set(out.splitlines())) == 1


def test_pdsh_runs_a_command_on_all(once):
    rc, out = once(
        "pdsh -S -f 8 -w 127.0.0.1,127.0.0.2 'echo node %n; exit %n'; echo code $?; pdsh -N -w 127.0.0.2 echo x"
    )
    assert rc == 0
    assert sorted(out.splitlines()) == ["127.0.0.1: node 0", "127.0.0.2: node 1", "code 1", "x"]


def test_other_hosts_are_left_to_the_real_ssh(once, tmp_path):
    folder = tmp_path / "real"
    folder.mkdir()
    (folder / "ssh").write_text('#!/bin/sh\necho the real one: "$@"\n')
    (folder / "ssh").chmod(0o755)
    rc, out = once(
        "ssh -p 22 git@example.org true; python -c 'import sys; sys.exit(0)'",
        environment_variables={"PATH": f"{folder}:{os.environ['PATH']}"},
    )
    assert (rc, out) == (0, "the real one: -p 22 git@example.org true\n")


def test_there_is_no_stand_in_where_every_process_is_started_here(cli, tmp_path):
    fields = {**ONCE, "drumline": {}}
    job = write_job(tmp_path, 'case $(command -v ssh) in "${TMPDIR}"*) exit 3;; esac', **fields)
    assert cli("job", "create", "-f", job, "--stream").rc == 0


def test_commands_on_other_nodes_end_with_the_job(tmp_path):
    """The fixture looks for what is left: a daemon that a remote command detached."""
    command = "ssh 127.0.0.2 'setsid sleep 1000 & echo there; exec sleep 1000' & wait"
    job = write_job(tmp_path, command, name="job", **ONCE)
    with background("job", "create", "-f", job, "--stream", cwd=tmp_path) as create:
        create.wait_for_output("there")
        rank = jobs.describe("job")["processes"]["ranks"][0]
        os.kill(rank["pid"], signal.SIGKILL)
        assert create.end() == 1
    assert "rank 0 on node 0 was ended by signal 9" in jobs.describe("job")["reason"]


def test_a_command_ends_when_whoever_asked_for_it_is_killed(once):
    rc, out = once(
        "ssh 127.0.0.2 'trap \"echo told > told; exit\" TERM; echo up > up; while :; do sleep 0.01; done' & "
        "until [ -e up ]; do sleep 0.01; done; kill -9 $!; until [ -e told ]; do sleep 0.01; done; cat told"
    )
    assert (rc, out.splitlines()[-1]) == (0, "told")


@pytest.mark.parametrize(
    "request_",
    [b"", b"x" * 20, b"9999999999", b"0000000003a\0b", b"0000000005shell", b"0000000018shell\0h\0port\0t\0c"],
)
def test_what_is_no_request_is_refused(once, request_):
    """Anything of the same user may knock at an agent's door."""
    program = (
        "import os, socket; door = socket.socket(socket.AF_UNIX); "
        "door.connect(os.path.join(os.environ['TMPDIR'], 'door')); "
        f"door.sendall({request_!r}); door.shutdown(socket.SHUT_WR); print(door.recv(100))"
    )
    rc, out = once(f'python -c "{program}"')
    assert rc == 0
    assert out.strip() in ("b''", r"b'refused\\n'", r"b'refused\n'")


def test_the_door_is_for_its_owner_alone(once):
    rc, out = once('stat -c %a $TMPDIR $DRUMLINE_BIN $DRUMLINE_BIN/ssh; stat -c %a "$DRUMLINE_HOSTFILE"')
    assert (rc, out.split()) == (0, ["700", "700", "700", "600"])


@pytest.mark.parametrize("distribution", [{"type": "tensorflow"}, {"type": "ray"}])
def test_where_every_process_is_started_here_the_command_cannot_be_a_launcher(cli, tmp_path, distribution):
    done = cli(
        "job", "create", "-f", write_job(tmp_path, "true", distribution=distribution, drumline={"once": True})
    )
    assert done.rc == 2
    assert "drumline.once" in done.err


def test_the_plan_shows_it(cli, tmp_path):
    done = cli("plan", "-f", write_job(tmp_path, "deepspeed train.py", **ONCE), "-o", "json")
    plan = json.loads(done.out)
    assert plan["remote_shell"]
    assert plan["host_file"] == "${node_0} slots=2\n${node_1} slots=2\n"
    assert [len(node["ranks"]) for node in plan["nodes"]] == [1, 0]
    assert plan["cores_wanted"] == 4


def test_a_launcher_without_a_job_file(cli, tmp_path):
    program = "ssh 127.0.0.2 'echo on $AZUREML_CR_NODE_RANK'; cat \"$DRUMLINE_HOSTFILE\""
    done = cli("run", "--nodes", "2", "--procs", "3", "--once", "--", "sh", "-c", program, cwd=tmp_path)
    assert done.rc == 0
    assert done.out.splitlines() == ["on 1", "127.0.0.1 slots=3", "127.0.0.2 slots=3"]
