"""Ranks on the nodes that this machine plays."""

import json
import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from waiting import wait_until

JOBS = Path(__file__).parent.parent / "jobs"
PYTHON = sys.executable


def said(done):
    """What each rank of say.py said, in the order of the lines."""
    assert (done.rc, done.out != "") == (0, True), done.err
    return [json.loads(line) for line in done.out.splitlines()]


@pytest.mark.parametrize(("nodes", "procs"), [(1, 1), (1, 3), (3, 1), (2, 2), (2, 16)])
def test_every_rank_runs_once(cli, nodes, procs):
    names = ("RANK", "LOCAL_RANK", "NODE_RANK", "WORLD_SIZE")
    done = cli(
        "run",
        "--nodes",
        str(nodes),
        "--procs",
        str(procs),
        "--no-prefix",
        "--",
        PYTHON,
        JOBS / "say.py",
        *names,
    )
    seen = sorted(tuple(int(one[name]) for name in names) for one in said(done))
    assert seen == [(rank, rank % procs, rank // procs, nodes * procs) for rank in range(nodes * procs)]


def test_what_another_launcher_left_does_not_reach_the_ranks(cli):
    left = {
        "RANK": "7",
        "TORCHELASTIC_RUN_ID": "x",
        "OMPI_COMM_WORLD_RANK": "7",
        "SLURM_PROCID": "7",
        "SLURMD_NODENAME": "e1",
        "KEPT": "yes",
    }
    done = cli("run", "--distribution", "plain", "--", PYTHON, JOBS / "say.py", *left, env=left)
    assert {name: said(done)[0][name] for name in left} == dict.fromkeys(left) | {"KEPT": "yes"}


def test_the_node_folder_is_kept_from_what_cleans_tmp(cli):
    """Such programs pass by a folder that somebody has locked, and all below it."""
    program = (
        "import errno, fcntl, os; folder = os.open(os.environ['TMPDIR'], os.O_RDONLY)\n"
        "try: fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
        "except BlockingIOError: print('locked')"
    )
    done = cli("run", "--nodes", "2", "--no-prefix", "--", PYTHON, "-c", program)
    assert done.out.split() == ["locked"] * 2


@pytest.mark.parametrize("python", ["python", "python3"])
def test_a_script_without_its_interpreter_is_refused_with_one_that_is_there(cli, tmp_path, python):
    (tmp_path / python).symlink_to(PYTHON)
    (tmp_path / "hello.py").touch()
    done = cli("run", "--", "hello.py", cwd=tmp_path, env={"PATH": str(tmp_path)})
    assert done.rc == 2
    assert f"hint: drumline run ... -- {python} hello.py\n" in done.err


def test_the_port_of_rank_0_is_free_when_many_jobs_start_at_once(cli):
    """Each binds it without SO_REUSEADDR, while the others look for ports of their own."""

    def run(_):
        return cli("run", "--nodes", "2", "--procs", "2", "--", PYTHON, JOBS / "bind.py").rc

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(run, range(12))) == [0] * 12


def test_every_task_of_tensorflow_has_a_port_of_its_own(cli):
    done = cli(
        "run",
        "--nodes",
        "2",
        "--distribution",
        "tensorflow",
        "--workers",
        "4",
        "--no-prefix",
        "--",
        PYTHON,
        JOBS / "say.py",
        "TF_CONFIG",
    )
    configs = [json.loads(one["TF_CONFIG"]) for one in said(done)]
    assert len({json.dumps(config["cluster"]) for config in configs}) == 1
    workers = configs[0]["cluster"]["worker"]
    assert len(set(workers)) == 4
    assert [worker.split(":")[0] for worker in workers] == [
        "127.0.0.1",
        "127.0.0.1",
        "127.0.0.2",
        "127.0.0.2",
    ]


def test_parameter_servers_are_ended_when_the_workers_are_done(cli):
    script = (
        "import json, os, time\n"
        "ps = json.loads(os.environ['TF_CONFIG'])['task']['type'] == 'ps'\n"
        "time.sleep(600 if ps else 0)\n"
    )
    done = cli("run", "--nodes", "2", "--distribution", "tensorflow", "--ps", "2", "--", PYTHON, "-c", script)
    assert done.rc == 0
    assert "all 2 workers ended with exit code 0; the 2 parameter servers were then stopped" in done.err


def test_a_rank_may_use_the_cores_of_its_node_and_threads_are_its_share(cli):
    script = "import os; print(os.environ['OMP_NUM_THREADS'], len(os.sched_getaffinity(0)))"
    done = cli("run", "--nodes", "1", "--procs", "1", "--", PYTHON, "-c", script)
    cores = len(os.sched_getaffinity(0))
    assert done.out.split() == [str(cores), str(cores)]


def test_a_program_that_is_not_there_is_said(cli):
    done = cli("run", "--nodes", "2", "--", "no-such-program")
    assert done.rc == 127
    assert "did not start: could not start 'no-such-program': No such file or directory" in done.err


def test_python_is_the_one_that_drumline_runs_in(cli):
    done = cli("run", "--", "python", "-c", "import sys; print(sys.prefix)")
    assert done.out.strip() == sys.prefix


def test_ranks_read_nothing_and_are_in_sessions_of_their_own(cli):
    script = "import os, sys; print(repr(sys.stdin.read()), os.getsid(0) == os.getpid())"
    assert cli("run", "--", PYTHON, "-c", script).out == "'' True\n"


def test_a_pipeline_in_a_command_ends_as_in_a_shell(cli, tmp_path):
    """Python ignores SIGPIPE; what it starts must not."""
    job = tmp_path / "job.yml"
    job.write_text("command: yes | head -n 1\n")
    done = cli("job", "create", "-f", job, "--stream")
    assert done.rc == 0
    assert "\ny\n" in done.out


def test_a_time_limit_ends_ranks_that_ignore_sigterm(cli):
    script = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up'); time.sleep(600)"
    )
    done = cli("run", "--timeout", "1", "--grace", "0.2", "--", PYTHON, "-c", script)
    assert done.rc == 124
    assert "it ran into its time limit of 1 s" in done.err


def test_ranks_get_the_grace_period_to_write_their_checkpoint(cli, tmp_path):
    script = (
        "import os, signal, sys, time\n"
        "def save(*_):\n"
        "    time.sleep(0.5); open(f'saved-{os.environ[\"RANK\"]}', 'w').close(); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, save)\n"
        "print('up', flush=True)\n"
        "if os.environ['RANK'] == '2':\n"
        "    while len([n for n in os.listdir('.') if n.startswith('up')]) < 3: time.sleep(0.01)\n"
        "    sys.exit(5)\n"
        "open('up' + os.environ['RANK'], 'w').close(); time.sleep(600)\n"
    )
    done = cli("run", "--nodes", "2", "--procs", "2", "--", PYTHON, "-c", script, cwd=tmp_path)
    assert done.rc == 5
    assert sorted(path.name for path in tmp_path.glob("saved-*")) == ["saved-0", "saved-1", "saved-3"]


def test_a_job_outlives_the_command_that_submitted_it(cli, tmp_path):
    """The command is killed, as by a terminal that is closed; its job goes on to its end."""
    import subprocess

    script = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)\nprint('done')"
    command = subprocess.Popen(
        [PYTHON, "-m", "drumline", "run", "--name", "lasting", "--", PYTHON, "-c", script], cwd=tmp_path
    )
    show = lambda query: cli("job", "show", "-n", "lasting", "--query", query, "-o", "tsv").out.strip()  # noqa: E731
    wait_until(lambda: show("status") == "Running", 20, "the job runs")
    command.send_signal(signal.SIGKILL)
    command.wait()
    (tmp_path / "go").touch()
    done = cli("job", "stream", "-n", "lasting")
    assert done.rc == 0
    assert "\ndone\n" in done.out
    assert show("status") == "Completed"


def test_stop_is_quick_when_ranks_obey(cli, tmp_path):
    """From the first failure to every process gone, by the events; the benchmark measures it from outside."""
    script = (
        "import os, sys, time\nif os.environ['RANK'] == '3': time.sleep(0.3); sys.exit(1)\ntime.sleep(600)"
    )
    done = cli("run", "--name", "quick", "--nodes", "2", "--procs", "4", "--", PYTHON, "-c", script)
    assert done.rc == 1
    lines = (Path(os.environ["DRUMLINE_HOME"]) / "jobs" / "quick" / "events.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    exits = [event["time"] for event in events if event["type"] == "RankExited"]
    # 0.1 s on a quiet machine; this one may be busy.
    assert max(exits) - min(exits) < 2.0
