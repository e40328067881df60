"""A command that is a launcher itself, on one node, and reaches the others by an ssh that is none."""

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
from cli_jobs import background, write_job
from waiting import wait_until

from drumline.control.facts import description
from drumline.control.jobs import lookup

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
        log = lookup.folder_of("job").user_logs + "/std_log.txt"
        with open(log) as file:
            return done.rc, file.read()

    return run


def test_the_command_runs_once_with_a_file_of_hosts(once):
    rc, out = once('cat "$DRUMLINE_HOSTFILE" "$HYDRA_HOST_FILE"; env')
    assert rc == 0
    lines = out.splitlines()
    assert lines[:4] == ["127.0.0.1 slots=2", "127.0.0.2 slots=2", "127.0.0.1:2", "127.0.0.2:2"]
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


def test_in_an_experiment_commands_end_with_one_that_fails(once):
    """The one that fails waits until the other has set its trap."""
    rc, out = once(
        "DRUMLINE_EXPERIMENT=1 pdsh -S -w 127.0.0.1,127.0.0.2 "
        "'test %n = 1 && { until test -e there; do sleep 0.1; done; echo said; exit 3; }; "
        'trap "touch ended; exit" TERM; touch there; sleep 1000 & wait\'; echo code $?; '
        "for i in $(seq 600); do test -e ended && break; sleep 0.1; done; ls ended"
    )
    assert (rc, out.splitlines()) == (0, ["127.0.0.2: said", "code 3", "ended"])


def test_other_hosts_are_left_to_the_real_ssh(once, tmp_path):
    folder = tmp_path / "real"
    folder.mkdir()
    (folder / "ssh").write_text('#!/bin/sh\necho the real one: "$@"\n')
    (folder / "ssh").chmod(0o755)
    rc, out = once(
        "ssh -p 22 git@example.org true; python3 -c 'import sys; sys.exit(0)'",
        environment_variables={"PATH": f"{folder}:{os.environ['PATH']}"},
    )
    assert (rc, out) == (0, "the real one: -p 22 git@example.org true\n")


def test_deepspeed_gets_the_nodes_of_the_job(once, tmp_path):
    folder = tmp_path / "real"
    folder.mkdir()
    (folder / "deepspeed").write_text('#!/bin/sh\necho "$@"\n')
    (folder / "deepspeed").chmod(0o755)
    rc, out = once(
        'echo "--hostfile $DRUMLINE_HOSTFILE --master_addr $MASTER_ADDR --master_port $MASTER_PORT train.py"; '
        "deepspeed train.py",
        environment_variables={"PATH": f"{folder}:{os.environ['PATH']}"},
    )
    expected, got = out.splitlines()
    assert (rc, got) == (0, expected)


AUTOTUNER = """#!/usr/bin/env python3
import base64, json, os, subprocess, sys

def find(name):
    return json.loads(base64.urlsafe_b64decode(sys.argv[-1]))["autotuning"][name]

if sys.argv[-1] != "ds_config.json":
    if find("stage"):
        sys.exit("h: [rank1]: Traceback (most recent call last):\\nh: [rank1]: RuntimeError: no room")
    with open(find("metric_path"), "w") as file:
        json.dump({"throughput": 812.5}, file)
    sys.exit()
for number in range(2):
    folder = f"autotuning_results/z{number}"
    os.mkdir(folder)
    with open(f"{folder}/exp.json", "w") as file:
        json.dump({"exp_id": number}, file)
    config = {"autotuning": {"stage": number, "metric_path": f"{folder}/metrics.json"}}
    given = base64.urlsafe_b64encode(json.dumps(config).encode()).decode()
    with open(f"{folder}/stderr.log", "w") as errors:
        subprocess.run(["deepspeed", "train.py", "--deepspeed", given], stderr=errors)
"""


def test_experiments_of_deepspeed_are_told_of_with_their_ends(once, cli, tmp_path):
    """A program in the place of DeepSpeed's, whose autotuner takes minutes: ``tests/frameworks`` has the real one."""
    folder = tmp_path / "real"
    folder.mkdir()
    (folder / "deepspeed").write_text(AUTOTUNER)
    (folder / "deepspeed").chmod(0o755)
    rc, _ = once(
        "deepspeed --autotuning tune train.py --deepspeed ds_config.json",
        environment_variables={"PATH": f"{folder}:{os.environ['PATH']}"},
    )
    assert rc == 0
    told = description.show_job("job")["experiments"]
    assert [(one["experiment"], one["number"], one["status"], one["reason"]) for one in told] == [
        ("z0", 0, "Completed", ""),
        ("z1", 1, "Failed", "RuntimeError: no room (rank 1 on h)"),
    ]
    assert [one["metrics"] for one in told] == [{"throughput": 812.5}, {}]
    assert (
        "z1 failed: RuntimeError: no room (rank 1 on h)" in cli("job", "show", "-n", "job", "--timeline").out
    )


def test_deepspeed_does_not_end_the_launchers_of_other_jobs(once):
    """When it gets SIGTERM it ends all that look like its own, which on a machine with several nodes are others too."""
    name = f"deepspeed.launcher.launch-{os.urandom(8).hex()}"
    other = subprocess.Popen(["bash", "-c", f"exec -a '{name}' sleep 1000"])
    try:
        wait_until(lambda: name in Path(f"/proc/{other.pid}/cmdline").read_text())
        rc, _ = once(f"pdsh -S -w 127.0.0.1,127.0.0.2 'pkill -f ' '{name}'")
        assert (rc, other.poll()) == (0, None)
    finally:
        other.kill()
        other.wait()


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
        rank = description.show_job("job")["processes"]["ranks"][0]
        os.kill(rank["pid"], signal.SIGKILL)
        assert create.end() == 1
    assert re.match(
        r"rank 0 on node 0 failed [\d.]+ s in: killed by signal 9",
        description.show_job("job")["reason"],
    )


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
    """Anything of the same user may knock at an agent's launcher socket."""
    program = (
        "import os, socket; door = socket.socket(socket.AF_UNIX); "
        "door.connect(os.path.join(os.environ['TMPDIR'], 'sock')); "
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


def test_both_directions_may_be_full_at_once(once):
    """The other side says much before it reads; whoever only writes meanwhile would wait for ever."""
    rc, out = once(
        "head -c 6000000 /dev/zero >big; "
        "ssh 127.0.0.2 'head -c 6000000 /dev/zero; wc -c >&2' <big 2>count | wc -c; cat count"
    )
    assert (rc, out.split()) == (0, ["6000000", "6000000"])


def test_ssh_with_n_leaves_the_input_alone(once):
    loop = "while read host; do ssh -n $host 'cat; echo on'; done"
    rc, out = once(f"printf '127.0.0.2\\n127.0.0.2\\n127.0.0.2\\n' | {loop}")
    assert (rc, out) == (0, "on\n" * 3)


def test_ssh_in_the_background_returns_at_once(once):
    rc, out = once(
        "ssh -f 127.0.0.2 'until [ -e go ]; do sleep 0.01; done; echo went > went'; echo back; touch go; "
        "until [ -e went ]; do sleep 0.01; done"
    )
    assert (rc, out) == (0, "back\n")


def test_ssh_without_a_command_is_a_shell(once):
    rc, out = once("echo 'echo on $AZUREML_CR_NODE_RANK; exit 4' | ssh 127.0.0.2; echo code $?")
    assert (rc, out) == (0, "on 1\ncode 4\n")


def test_ssh_that_forwards_is_refused(once):
    rc, out = once("ssh -N -L 1:h:2 127.0.0.2; echo code $?")
    assert rc == 0
    assert out.splitlines()[-1] == "code 255"
    assert "-L, -N: nodes of a job are reached without a connection" in out


def test_whoever_reads_may_stop(once):
    rc, out = once("ssh 127.0.0.2 yes | head -1; echo code ${PIPESTATUS[0]}")
    assert (rc, out) == (0, "y\ncode 141\n")


def test_the_end_of_one_command_is_not_that_of_another(once):
    """The first is given up and ends later; the second asks meanwhile."""
    rc, out = once(
        'ssh 127.0.0.2 \'trap "until [ -e second ]; do sleep 0.01; done; exit 7" TERM; touch up; '
        "while :; do sleep 0.01; done' </dev/null & first=$!; "
        "until [ -e up ]; do sleep 0.01; done; kill -9 $first; "
        "ssh 127.0.0.2 'touch second; sleep 0.5; exit 3' </dev/null; echo code $?"
    )
    assert rc == 0
    assert out.splitlines()[-1] == "code 3"


def test_pdsh_leaves_out_and_counts(once):
    rc, out = once(
        "pdsh -w 127.0.0.[1-2] echo all; pdsh -w 127.0.0.1,127.0.0.2 -x 127.0.0.1 'printf one; sleep 0.1 &'"
    )
    assert rc == 0
    assert sorted(out.splitlines()) == ["127.0.0.1: all", "127.0.0.2: all", "127.0.0.2: one"]


def test_a_program_of_the_users_called_rank_is_the_users(once, tmp_path):
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "rank").write_text("#!/bin/sh\necho the user\\'s\n")
    (folder / "rank").chmod(0o755)
    rc, out = once('PATH="$PATH":' + f"'{folder}'; rank")
    assert (rc, out) == (0, "the user's\n")


def test_nobody_else_gets_in_between(once):
    """Who connects to the port of an ssh and says nothing, or something else, does not hold it up."""
    program = (
        "import glob, os, re, socket, time\n"
        "def ports():\n"
        "    lines = open('/proc/net/tcp').read().splitlines()\n"
        "    return {int(line.split()[1].split(':')[1], 16) for line in lines\n"
        "            if line.split()[1].startswith('0100007F') and line.split()[3] == '0A'}\n"
        "known, open_ = ports(), []\n"
        "open('ready', 'w')\n"
        "while not os.path.exists('over'):\n"
        "    for port in ports() - known:\n"
        "        try:\n"
        "            guest = socket.create_connection(('127.0.0.1', port), 1)\n"
        "            guest.send(b'x' * 40 if len(open_) % 2 else b'x')\n"
        "            open_.append(guest)\n"
        "        except OSError: pass\n"
    )
    rc, out = once(
        f'python -c "{program}" & until [ -e ready ]; do sleep 0.01; done; '
        "for i in $(seq 20); do ssh 127.0.0.2 echo on </dev/null; done; touch over; wait"
    )
    assert (rc, out) == (0, "on\n" * 20)
