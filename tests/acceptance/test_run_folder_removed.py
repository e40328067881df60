"""A run folder that is removed under its job: nobody could see or end that any more, so it ends."""

import shlex

import pytest
from chaos import carrying
from cli_jobs import CORES, WAIT_FOR_SIGNAL, background, logs_of, wait_for_status, write_job
from waiting import remove_folder, wait_until

from drumline.contract import process_identity
from drumline.contract.folder import RunFolder


@pytest.fixture
def token(tmp_path):
    return f"token-{tmp_path.name}-{id(tmp_path)}"


def supervisor_of(name):
    folder = RunFolder.for_job(name)
    return wait_until(lambda: folder.read_json(folder.supervisor), what=f"the supervisor of {name}")


def begin(cli, token, *, name="job", ranks=2):
    done = cli(
        "run", "-d", "--name", name, "--procs", str(ranks), "--", "python", "-c", WAIT_FOR_SIGNAL, token
    )
    assert done.rc == 0, done.err
    return supervisor_of(name)


def all_ready(home, name="job"):
    def ready():
        logs = logs_of(home / "jobs" / name)
        return logs and all("ready" in log for log in logs)

    wait_until(ready, 20, "all ranks to be up")


def gone(who, token):
    wait_until(lambda: not process_identity.is_alive(who), 20, "the supervisor to be gone")
    wait_until(lambda: carrying(token) == [], 5, "what it started to be gone")


def test_a_job_whose_run_folder_is_removed_ends(cli, drumline_home, token):
    who = begin(cli, token)
    all_ready(drumline_home)
    remove_folder(drumline_home / "jobs" / "job")
    gone(who, token)
    # Its cores are free again, and nothing was made where it was.
    assert not (drumline_home / "jobs" / "job").exists()
    assert cli("run", "--procs", str(CORES), "--", "true").rc == 0


def test_one_of_the_same_name_hears_nothing_of_it(cli, drumline_home, token):
    who = begin(cli, token)
    all_ready(drumline_home)
    folder = drumline_home / "jobs" / "job"
    folder.rename(drumline_home / "jobs" / "aside")
    assert cli("run", "-d", "--name", "job", "--", "true").rc == 0
    before = (drumline_home / "jobs" / "aside" / "events.jsonl").read_bytes()
    gone(who, token)
    assert wait_for_status("job", "Completed", "Failed", "Canceled")["status"] == "Completed"
    assert (drumline_home / "jobs" / "aside" / "events.jsonl").read_bytes() == before


def test_one_that_waits_in_the_queue_leaves_it(cli, drumline_home, token):
    holds = begin(cli, token, name="holds", ranks=CORES)
    all_ready(drumline_home, "holds")
    waits = begin(cli, token, name="waits")
    wait_for_status("waits", "Queued")
    remove_folder(drumline_home / "jobs" / "waits")
    wait_until(lambda: not process_identity.is_alive(waits), 20, "the supervisor that waits to be gone")
    assert cli("job", "cancel", "-n", "holds").rc == 0
    gone(holds, token)


def test_the_steps_of_a_pipeline_whose_run_folder_is_removed_end(cli, tmp_path, drumline_home, token):
    command = f"python -c {shlex.quote(WAIT_FOR_SIGNAL)} {token}"
    steps = {name: {"type": "command", "command": command} for name in "ab"}
    path = write_job(tmp_path, "", type="pipeline", name="p", jobs=steps)
    path.write_text(path.read_text().replace('"command": "", ', "", 1))
    assert cli("job", "create", "-f", path).rc == 0
    first = supervisor_of("p-a")
    driver = supervisor_of("p")
    all_ready(drumline_home, "p-a")
    remove_folder(drumline_home / "jobs" / "p")
    wait_until(lambda: not process_identity.is_alive(driver), 20, "the driver to be gone")
    assert wait_for_status("p-a", "Completed", "Failed", "Canceled")["reason"] == (
        "canceled by whoever removed the run folder of job p"
    )
    gone(first, token)


def test_who_follows_it_is_told(cli, tmp_path, drumline_home, token):
    program = ("python", "-c", WAIT_FOR_SIGNAL, token)
    with background("run", "--name", "job", "--", *program, cwd=tmp_path) as command:
        command.wait_for_output("ready")
        remove_folder(drumline_home / "jobs" / "job")
        assert command.end() != 0
        assert "Traceback" not in command.err
        assert "there is no job 'job'" in command.err
    wait_until(lambda: not carrying(token), 20, "everything gone")
