"""Ranks that are forked from a warm interpreter: what is kept, what is not, and what becomes of it when things die."""

import contextlib
import json
import os
import re
import resource
import signal
import stat
import textwrap

import pytest
from cli_jobs import logs_of, wait_for_status, write_script
from waiting import remove_folder, wait_until

from drumline.control.facts import description
from drumline.control.machine import warm

SHOWS = """
    import os
    import slow
    print("rank", os.environ["RANK"], "sees", slow.VALUE, flush=True)
"""


@pytest.fixture(autouse=True)
def _on(monkeypatch):
    monkeypatch.setenv("DRUMLINE_WARM", "on")


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """Install modules: a name and its text each."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    monkeypatch.setenv("PYTHONPATH", str(folder))

    def install(**modules):
        for name, text in modules.items():
            (folder / f"{name}.py").write_text(textwrap.dedent(text))
        return folder

    return install


@pytest.fixture
def run(cli, tmp_path, drumline_home):
    """Run a script as job ``name``, on one node of two unless told otherwise; the text of its logs by rank."""

    def run_it(text, name="job", command="python train.py", rc=0, **fields):
        folder = tmp_path / name
        folder.mkdir()
        path = write_script(folder, text, command, **{"resources": {"instance_count": 1}, **fields})
        done = cli("job", "create", "-f", path, "-n", name, "--stream")
        assert done.rc == rc, done.out + done.err
        return logs_of(drumline_home / "jobs" / name)

    return run_it


def events(home, kind, name="job"):
    lines = (home / "jobs" / name / "events.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["type"] == kind]


def warm_starts(home, name="job"):
    """By node, and none that was declined."""
    assert events(home, "WarmDeclined", name) == []
    return sorted(events(home, "WarmStart", name), key=lambda event: event["node"])


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_both_nodes_and_the_next_job_have_the_same_interpreter(packages, run, drumline_home):
    packages(slow="VALUE = 7")
    nodes = {"resources": {"instance_count": 2}}
    assert run(SHOWS, **nodes) == [f"rank {rank} sees 7\n" for rank in range(4)]
    first = warm_starts(drumline_home)
    assert [(one["modules"], one["until"], one["reused"]) for one in first] == [(["slow"], "", False)] * 2
    assert run(SHOWS, "next", **nodes) == [f"rank {rank} sees 7\n" for rank in range(4)]
    second = warm_starts(drumline_home, "next")
    assert {one["pid"] for one in (*first, *second)} == {first[0]["pid"]}
    assert all(one["reused"] for one in second)
    (held,) = warm.warm_interpreters(str(drumline_home))
    assert (held.pid, held.used) == (first[0]["pid"], 8)
    (socket,) = drumline_home.glob("warm/*/*/socket")
    assert stat.S_IMODE(socket.stat().st_mode) == 0o600
    assert stat.S_IMODE(socket.parent.stat().st_mode) == 0o700


def test_what_has_changed_on_the_disk_is_imported_anew(packages, run, drumline_home):
    packages(slow="VALUE = 7")
    run(SHOWS)
    packages(slow="VALUE = 'new'")
    assert run(SHOWS, "next")[0] == "rank 0 sees new\n"
    (first, *_), (second, *_) = warm_starts(drumline_home), warm_starts(drumline_home, "next")
    assert first["pid"] != second["pid"]


@pytest.mark.parametrize(
    "chosen", ["", "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (500, 600))"]
)
def test_ranks_have_the_limit_of_open_files_of_their_own_job(packages, run, drumline_home, chosen):
    """Servers of notebooks raise it. One that an import chose is the same in all ranks."""
    packages(slow=chosen)
    script = """
        import slow
        import resource
        print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert run(script) == ["500\n" if chosen else f"{soft}\n"] * 2
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
    try:
        assert run(script, "next") == ["500\n" if chosen else f"{soft - 1}\n"] * 2
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert [one["reused"] for one in warm_starts(drumline_home, "next")] == [True]


def test_an_attempt_that_follows_is_forked_from_the_same(packages, run, drumline_home):
    packages(slow="VALUE = 7")
    script = """
        import os, signal
        import slow
        if os.environ["DRUMLINE_ATTEMPT"] == "0":
            if os.environ["RANK"] == "1":
                os.kill(os.getpid(), signal.SIGKILL)
            signal.pause()
    """
    run(script, drumline={"max_restarts": 1})
    found = warm_starts(drumline_home)
    assert len(found) == 2
    assert len({one["pid"] for one in found}) == 1


def test_a_package_that_looks_at_the_rank_is_each_rank_s_own(packages, run, drumline_home):
    packages(
        slow="VALUE = 7",
        looks="import os, helper\nVALUE = os.environ.get('RANK')",
        helper="VALUE = 8",
        above="import looks\nVALUE = looks.VALUE",
    )
    script = """
        import slow, above
        import sys
        print(above.VALUE, "helper" in sys.modules, flush=True)
    """
    assert run(script) == [f"{rank} True\n" for rank in range(2)]
    found = warm_starts(drumline_home)
    assert all("slow" in one["modules"] and "looks" not in one["modules"] for one in found)


def test_a_package_that_seeds_random_numbers_does_so_in_each_rank(packages, run, drumline_home):
    packages(slow="import random\nVALUE = random.random()", seeds="import random\nrandom.seed(0)")
    script = "import slow, seeds, random\nprint(random.random(), flush=True)"
    assert set(run(script)) == {"0.8444218515250481\n"}
    assert [one["modules"] for one in warm_starts(drumline_home)] == [["random", "slow"]]


def test_what_must_not_be_imported_ahead_is_not_by_others_either(packages, run, drumline_home):
    packages(slow="VALUE = 7", ray="import os\nVALUE = os.getpid()", above="import ray\nVALUE = ray.VALUE")
    script = "import os, slow, above\nprint(above.VALUE == os.getpid(), flush=True)"
    assert run(script) == ["True\n"] * 2
    assert [one["modules"] for one in warm_starts(drumline_home)] == [["slow"]]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
            "thread",
        ),
        ("import socket\nVALUE = socket.socket()", "open"),
        ("import subprocess\nVALUE = subprocess.Popen(['sleep', '60'])", "process"),
        ("raise SystemExit(3)", "SystemExit"),
        ("import os\nos.chdir('/')", "folder"),
        (
            """
            import os, sys, types
            me = os.getpid()
            cuda = types.SimpleNamespace(
                is_initialized=lambda: False, _is_in_bad_fork=lambda: os.getpid() != me
            )
            sys.modules["torch"] = types.SimpleNamespace(cuda=cuda)
            """,
            "devices",
        ),
    ],
)
def test_what_does_not_survive_a_fork_is_not_forked(packages, run, drumline_home, text, why):
    packages(unfit=text)
    script = """
        import os
        try:
            import unfit
        except SystemExit:
            pass
        child = getattr(unfit, "VALUE", None) if "unfit" in dir() else None
        if hasattr(child, "kill"):
            child.kill()
        print("ran", os.environ["RANK"], flush=True)
        os._exit(0)
    """
    assert run(script) == [f"ran {rank}\n" for rank in range(2)]
    assert events(drumline_home, "WarmStart") == []
    declined = events(drumline_home, "WarmDeclined")
    assert [why in one["reason"] and one["asked"] for one in declined] == [True], declined


def test_what_imports_print_is_in_the_log_of_each_rank(packages, run, drumline_home):
    packages(slow="import sys\nprint('hello')\nprint('there', file=sys.stderr)\nVALUE = 7")
    assert run(SHOWS)[1] == "hello\nthere\nrank 1 sees 7\n"
    assert len(warm_starts(drumline_home)) == 1


def test_a_file_beside_the_program_hides_a_module_as_ever(packages, run, drumline_home, tmp_path):
    packages(slow="import colorsys\nVALUE = colorsys.__file__")
    (tmp_path / "job" / "src").mkdir(parents=True)
    script = "import slow\nprint(slow.VALUE, flush=True)"
    (tmp_path / "job" / "src" / "train.py").write_text(script)
    (tmp_path / "job" / "src" / "colorsys.py").write_text("")
    job = tmp_path / "job.yml"
    job.write_text(json.dumps({"name": "job", "code": "job/src", "command": "python train.py"}))
    assert jobs_run(job) == 0
    assert logs_of(drumline_home / "jobs" / "job")[0].endswith("code/colorsys.py\n")
    (declined,) = events(drumline_home, "WarmDeclined")
    assert "colorsys.py stands beside the program" in declined["reason"]


def jobs_run(path):
    import subprocess
    import sys

    command = [sys.executable, "-m", "drumline", "job", "create", "-f", str(path), "--stream"]
    return subprocess.run(command, capture_output=True, check=False, timeout=60).returncode


def test_variables_that_the_program_sets_before_its_imports(packages, run, drumline_home):
    packages(slow="import os\nVALUE = os.environ['CHOICE']")
    script = """
        import os
        os.environ["CHOICE"] = "mine"
        import slow
        print(slow.VALUE, flush=True)
    """
    assert run(script)[0] == "mine\n"
    assert [one["modules"] for one in warm_starts(drumline_home)] == [["slow"]]


def test_a_relative_path_of_modules(packages, run, drumline_home, monkeypatch, tmp_path):
    folder = packages(slow="VALUE = 7")
    monkeypatch.setenv("PYTHONPATH", f"lib{os.pathsep}{folder}")
    script = """
        import sys, os
        import slow
        print(os.path.join(os.getcwd(), "lib") in sys.path, slow.VALUE, flush=True)
    """
    assert run(script)[1] == "True 7\n"
    assert len(warm_starts(drumline_home)) == 1


def test_a_job_is_canceled_while_its_imports_are_under_way(packages, cli, tmp_path, drumline_home):
    packages(slow=f"import os, time\nopen({str(tmp_path / 'begun')!r}, 'w')\nwhile True: time.sleep(0.01)")
    assert cli("job", "create", "-f", write_script(tmp_path, SHOWS)).rc == 0
    wait_until((tmp_path / "begun").exists)
    assert cli("job", "cancel", "-n", "job").rc == 0
    wait_for_status("job", "Canceled")


WAITS = """
    import os, subprocess, sys, time
    import slow
    daemon = subprocess.Popen(["sleep", "600"], start_new_session=True, env={})
    print("ready", daemon.pid, flush=True)
    while not os.path.exists(os.path.join(os.environ["GO"], "go")):
        time.sleep(0.01)
    daemon.kill()
"""


@pytest.fixture
def running(packages, cli, tmp_path, drumline_home):
    """A job that waits for the file ``go``; the event of its warm start, and its daemons."""
    packages(slow="VALUE = 7")
    path = write_script(tmp_path, WAITS, environment_variables={"GO": str(tmp_path)})
    assert cli("job", "create", "-f", path).rc == 0

    def ready():
        texts = logs_of(drumline_home / "jobs" / "job")
        return all(text.startswith("ready") and text.endswith("\n") for text in texts)

    wait_until(ready)
    daemons = [int(text.split()[1]) for text in logs_of(drumline_home / "jobs" / "job")]
    yield warm_starts(drumline_home), daemons
    for pid in daemons:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(one) for one in file.read().split()]


def test_who_ends_the_pool_and_the_interpreter_ends_no_rank(running, tmp_path):
    (first, *_), daemons = running
    with open(f"/proc/{first['pid']}/status") as file:
        pool = next(int(line.split()[1]) for line in file if line.startswith("PPid"))
    for pid in (pool, first["pid"]):
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not is_running(first["pid"]))
    (tmp_path / "go").touch()
    wait_for_status("job", "Completed")
    wait_until(lambda: not any(map(is_running, daemons)))


def test_a_fork_server_that_is_killed_takes_its_ranks_with_it(running):
    (first, *_), daemons = running
    for fork_server in children(first["pid"]):
        os.kill(fork_server, signal.SIGKILL)
    wait_for_status("job", "Failed")
    wait_until(lambda: not any(map(is_running, daemons)))
    killed = (
        r"killed with process \d+, the warm interpreter that had forked it, which was killed from outside"
    )
    assert re.search(killed, description.show_job("job")["reason"])


def test_an_agent_that_is_killed_leaves_nothing(running, drumline_home):
    _, daemons = running
    for agent in events(drumline_home, "AgentJoined"):
        os.kill(agent["pid"], signal.SIGKILL)
    wait_for_status("job", "Failed")
    wait_until(lambda: not any(map(is_running, daemons)))


def test_a_cancel_ends_all_that_a_warm_rank_has_started(running, cli):
    _, daemons = running
    assert cli("job", "cancel", "-n", "job").rc == 0
    wait_for_status("job", "Canceled")
    assert not any(map(is_running, daemons))


def test_what_nobody_uses_ends_by_itself(packages, run, drumline_home, monkeypatch):
    monkeypatch.setenv("DRUMLINE_WARM_IDLE_S", "0.3")
    packages(slow="VALUE = 7")
    run(SHOWS)
    (first, *_) = warm_starts(drumline_home)
    wait_until(lambda: not is_running(first["pid"]))


@pytest.mark.parametrize(
    "modules",
    [
        {"sitecustomize": "raise ValueError('own')", "slow": "VALUE = 7"},
        {
            # The interpreter's trial, the fork server, and then the rank.
            "slow": """
                import os
                VALUE, forks, fork = 7, [], os.fork
                def forked():
                    forks.append(1)
                    if len(forks) > 2:
                        raise BlockingIOError(11, "no more processes")
                    return fork()
                os.fork = forked
            """
        },
    ],
    ids=["sitecustomize", "fork"],
)
def test_only_ranks_ever_run_the_program(packages, run, drumline_home, tmp_path, modules):
    packages(**modules)
    ran = tmp_path / "ran"
    run(SHOWS + f"    open({str(ran)!r}, 'a').write(os.environ.get('RANK', 'none') + ' ')\n")
    assert sorted(ran.read_text().split()) == ["0", "1"]
    assert events(drumline_home, "WarmStart") == []
    assert len(events(drumline_home, "WarmDeclined")) == 1


def test_what_imports_make_of_their_folder_is_for_that_folder(packages, run, drumline_home):
    packages(slow="import os\nVALUE = os.getcwd()", other="import multiprocessing.process")
    script = """
        import other, slow
        import os
        print(os.getcwd() == slow.VALUE == other.multiprocessing.process.ORIGINAL_DIR, flush=True)
    """
    run(script)
    assert run(script, "next") == ["True\n"] * 2
    assert not warm_starts(drumline_home, "next")[0]["reused"]


def test_an_interpreter_is_made_anew_though_the_folder_of_the_first_is_gone(
    packages, run, drumline_home, tmp_path
):
    packages(slow="VALUE = 7")
    run(SHOWS)
    for folder in (tmp_path / "job", drumline_home / "jobs" / "job"):
        remove_folder(folder)
    packages(slow="VALUE = 'new'")
    assert run(SHOWS, "next")[0] == "rank 0 sees new\n"
    assert len(warm_starts(drumline_home, "next")) == 1


def test_a_fork_server_that_somebody_stopped_keeps_no_job_from_its_end(running, cli):
    (first, *_), daemons = running
    for fork_server in children(first["pid"]):
        os.kill(fork_server, signal.SIGSTOP)
    assert cli("job", "cancel", "-n", "job").rc == 0
    wait_for_status("job", "Canceled")
    assert not any(map(is_running, daemons))
    assert "SIGKILL" not in description.show_job("job")["reason"]
