"""What Slurm is asked of a job, and what is made of its answers; with fake commands and a clock of the test's own."""

import json
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from planning import plan

from drumline.contract import events as e
from drumline.contract import secrets, status
from drumline.contract.errors import EngineError, NotSubmittedError, PlanError
from drumline.contract.folder import RunFolder
from drumline.contract.outcome import fold
from drumline.control.jobs import ending, recovery
from drumline.control.submission import planning, submit
from drumline.engines.base import JobView
from drumline.engines.slurm import engine, jobs, slurm_commands
from drumline.engines.slurm.engine import SlurmEngine
from drumline.engines.slurm.jobs import claim, number_of
from drumline.spec.jobs.command import command
from drumline.supervisor.main import _read_secrets
from drumline.supervisor.supervised_folder import SupervisedFolder

NOW = time.mktime((2026, 1, 2, 3, 4, 5, 0, 0, -1))
ENDED = "2026-01-02T03:04:00"
"""5 s before now."""


class Clock:
    """In the place of ``time`` in the engine; ``hooks``: what happens while it sleeps, a step at a time."""

    mktime, strptime = time.mktime, time.strptime

    def __init__(self):
        self.now = NOW
        self.slept = []
        self.hooks = []

    def time(self):
        return self.now

    monotonic = time

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds
        if self.hooks:
            self.hooks.pop(0)()


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    for module in (engine, jobs, jobs):
        monkeypatch.setattr(module, "time", made)
    return made


@pytest.fixture
def folder(tmp_path, slurm, clock):
    """Of a job that Slurm has as number 7 since a while, of which nothing is known otherwise."""
    made = RunFolder(str(tmp_path / "home" / "jobs" / "calm_drum"))
    made.create()
    made.write(made.plan, plan(2, at={"engine": "slurm"}).to_json())
    made.begin(e.JobSubmitted(NOW - 100, "ann", "slurm"))
    os.utime(made.events, (NOW - 100, NOW - 100))
    claim(made, "7")
    slurm.says("squeue")
    slurm.says("scontrol", err="slurm_load_jobs error: Invalid job id specified\n", rc=1)
    slurm.says("sacct", err="Slurm accounting storage is disabled\n", rc=1)
    slurm.says("scancel")
    return made


def in_queue(slurm, folder, state, reason="None", start="N/A", number="7"):
    slurm.says(
        "squeue",
        f"5|RUNNING|None|N/A|main|/elsewhere\n{number}|{state}|{reason}|{start}|main|{folder.path}\n",
    )


def remembered(slurm, state, *, exit_code="0:0", ended=ENDED, batch_host="e1", **more):
    fields = {
        "JobId": "7",
        "JobState": state,
        "ExitCode": exit_code,
        "EndTime": ended,
        "BatchHost": batch_host,
        **more,
    }
    slurm.says(
        "scontrol", " ".join(f"{name}={value}" for name, value in fields.items() if value is not None) + "\n"
    )


def look(folder):
    return SlurmEngine().view_job(folder, may_withdraw=True)


@pytest.mark.parametrize(
    ("state", "reason", "start", "expected"),
    [
        ("PENDING", "Resources", "N/A", JobView("waits", "nodes that it needs are busy (Resources)")),
        ("PENDING", "Priority", "2026-01-02T04:00:00",
         JobView("waits", "others before it have a higher priority (Priority), to start about 2026-01-02T04:00:00")),
        ("REQUEUED", "None", "N/A", JobView("waits", "Slurm has not looked at it yet (None)")),
        ("CONFIGURING", "None", "N/A", JobView("starts", "Slurm makes its nodes ready (CONFIGURING)")),
        ("RUNNING", "None", "N/A", JobView("runs", "")),
        ("COMPLETING", "None", "N/A", JobView("runs", "")),
        ("CANCELLED", "None", "N/A", JobView("runs", "")),
        ("SUSPENDED", "None", "N/A", JobView("runs", "Slurm has suspended it; it goes on when Slurm lets it")),
        ("NEWER", "None", "N/A", JobView("runs", "Slurm says NEWER, which is not known here")),
    ],
)  # fmt: skip
def test_one_that_is_in_the_queue(slurm, folder, state, reason, start, expected):
    in_queue(slurm, folder, state, reason, start)
    assert look(folder) == expected
    assert slurm.calls("scontrol") == []


@pytest.mark.parametrize(
    ("reason", "job", "partition", "never"),
    [
        ("PartitionTimeLimit", {"TimeLimit": "02:00:00"}, {"MaxTime": "01:00:00"}, True),
        ("PartitionTimeLimit", {"TimeLimit": "02:00:00"}, {"MaxTime": "1-00:00:00"}, False),
        ("PartitionNodeLimit", {"NumNodes": "2-2"}, {"MaxNodes": "1", "TotalNodes": "4"}, True),
        # Slurm says so while nodes are down, too.
        ("PartitionNodeLimit", {"NumNodes": "2-2"}, {"MaxNodes": "UNLIMITED", "TotalNodes": "4"}, False),
        ("BadConstraints", {}, {}, True),
        # Slurm says so while its accounting is away, too.
        ("InvalidAccount", {}, {}, False),
        ("QOSNotAllowed", {}, {}, False),
        ("QOSMaxCpuPerJobLimit", {}, {}, True),
        ("AssocGrpCpuLimit", {}, {}, False),
        ("ReqNodeNotAvail,_UnavailableNodes:e1", {}, {}, False),
        ("Resources", {}, {}, False),
    ],
)
def test_one_that_can_never_start_is_ended_with_the_reason(slurm, folder, reason, job, partition, never):
    in_queue(slurm, folder, "PENDING", reason)
    fields = {
        "JobId": "7",
        "JobState": "PENDING",
        "Reason": reason,
        **job,
        "PartitionName": "main",
        **partition,
    }
    slurm.says("scontrol", " ".join(f"{name}={value}" for name, value in fields.items()) + "\n")
    seen = look(folder)
    assert (seen.state, seen.status) == (("gone", status.FAILED) if never else ("waits", ""))
    assert slurm.calls("scancel") == (["--state=PENDING 7"] if never else [])
    if never:
        assert seen.reason.startswith("it can never start: ")
        assert f"({reason})" in seen.reason


def test_what_slurm_says_at_first_ends_nothing(slurm, folder, clock):
    in_queue(slurm, folder, "PENDING", "BadConstraints")
    clock.now = os.stat(folder.events).st_mtime + 5
    assert look(folder).state == "waits"
    assert slurm.calls("scancel") == []


def test_one_that_came_to_the_queue_since_that_was_asked_for(slurm, folder):
    remembered(slurm, "PENDING", Reason="Nodes_required_for_job_are_DOWN,_DRAINED", StartTime="Unknown")
    assert look(folder) == JobView(
        "waits", "nodes that it needs are down, drained or reserved (ReqNodeNotAvail)"
    )
    remembered(slurm, "RUNNING")
    assert look(folder) == JobView("runs", "")


@pytest.mark.parametrize(
    ("state", "exit_code", "ended_as", "code", "reason"),
    [
        ("FAILED", "1:0", status.FAILED, 1,
         "its batch script failed before its supervisor could say why (FAILED in Slurm)"),
        ("FAILED", "0:9", status.FAILED, 1, "its supervisor was killed by SIGKILL (FAILED in Slurm)"),
        ("FAILED", "0:53", status.FAILED, 1,
         "Slurm could not start its batch script; is the run folder there on the node? (FAILED in Slurm)"),
        ("COMPLETED", "0:0", status.FAILED, 1,
         "its batch script ended without a word of its supervisor (COMPLETED in Slurm)"),
        ("CANCELLED", "0:15", status.CANCELED, 130, "it was canceled with scancel (CANCELLED in Slurm)"),
        ("TIMEOUT", "0:0", status.FAILED, 1, "Slurm's time limit was reached (TIMEOUT in Slurm)"),
        ("NODE_FAIL", "0:0", status.FAILED, 1, "a node of it failed (NODE_FAIL in Slurm)"),
        ("PREEMPTED", "0:0", status.FAILED, 1,
         "another job took its nodes, and Slurm does not start it again (PREEMPTED in Slurm)"),
        ("OUT_OF_MEMORY", "0:125", status.FAILED, 1,
         "the batch step ran out of the memory that Slurm allows (OUT_OF_MEMORY in Slurm)"),
        ("BOOT_FAIL", "0:0", status.FAILED, 1, "a node that it was given did not boot (BOOT_FAIL in Slurm)"),
        ("DEADLINE", "0:0", status.FAILED, 1, "its deadline came (DEADLINE in Slurm)"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("by_accounting", [False, True])
def test_one_that_is_gone(slurm, folder, state, exit_code, ended_as, code, reason, by_accounting):
    if by_accounting:
        slurm.says("sacct", f"{state}|{exit_code}\n")
    else:
        remembered(slurm, state, exit_code=exit_code)
    assert look(folder) == JobView("gone", reason, ended_as, code)


def test_who_canceled_it_is_told_where_the_accounting_knows(slurm, folder):
    slurm.says("sacct", f"CANCELLED by {os.getuid()}|0:15\n")
    by_accounting = look(folder)
    remembered(slurm, "CANCELLED")
    import pwd

    by = f" by {pwd.getpwuid(os.getuid()).pw_name}"
    assert (
        by_accounting.reason
        == look(folder).reason
        == f"it was canceled with scancel (CANCELLED in Slurm){by}"
    )
    slurm.says("sacct", "CANCELLED by 3999999999|0:15\n")
    assert look(folder).reason.endswith(" by user 3999999999")


@pytest.mark.parametrize(("network", "ended_s", "settled"), [
    (False, 0.5, False), (False, 1.5, True), (True, 20.0, False), (True, 31.0, True), (False, -3.0, False),
])  # fmt: skip
def test_its_supervisors_last_word_is_waited_for(
    slurm, folder, clock, monkeypatch, network, ended_s, settled
):
    monkeypatch.setattr(jobs, "is_network", lambda path: network)
    remembered(slurm, "FAILED")
    clock.now = NOW - 5 + ended_s
    assert look(folder).state == ("gone" if settled else "runs")


def test_one_that_never_had_a_node_has_no_last_word(slurm, folder, clock, monkeypatch):
    monkeypatch.setattr(jobs, "is_network", lambda path: True)
    clock.now = NOW - 5
    remembered(slurm, "CANCELLED", batch_host=None)
    assert look(folder).state == "gone"
    remembered(slurm, "CANCELLED", batch_host="e1")
    assert look(folder).state == "runs"
    remembered(slurm, "CANCELLED", batch_host=None)
    folder.write(folder.supervisor, "{}")
    assert look(folder).state == "runs"


def test_one_that_slurm_has_forgotten(slurm, folder, clock):
    words = "Slurm no longer knows job 7, and its supervisor has not told of its end"
    assert look(folder) == JobView("gone", words, status.FAILED, 1)
    os.utime(folder.events, (NOW - 29, NOW - 29))
    assert look(folder) == JobView("unknown", "it is on its way to Slurm")


@pytest.mark.parametrize("state", ["RUNNING", "PENDING", "REQUEUED"])
def test_an_accounting_that_was_never_told_of_its_end_does_not_say_how_it_ended(slurm, folder, state):
    slurm.says("sacct", f"{state}|0:0\n")
    assert "Slurm no longer knows job 7" in look(folder).reason


def test_one_whose_number_nobody_has_written_down_is_known_by_its_folder(slurm, folder):
    os.unlink(folder.engine)
    in_queue(slurm, folder, "PENDING", "Priority", number="12")
    assert look(folder).state == "waits"
    slurm.says("squeue")
    assert look(folder) == JobView("unknown", "it is on its way to Slurm"), (
        "whoever submits it may still be asking"
    )
    os.utime(folder.events, (0, 0))
    words = "Slurm no longer knows a job of this run folder, and its supervisor has not told of its end"
    assert look(folder) == JobView("gone", words, status.FAILED, 1)
    assert slurm.calls("sacct") == slurm.calls("scontrol") == []


def test_a_folder_that_was_named_by_a_link_is_the_same(slurm, folder, tmp_path):
    os.unlink(folder.engine)
    os.utime(folder.events, (0, 0))
    (tmp_path / "link").symlink_to(tmp_path / "home")
    in_queue(slurm, RunFolder(str(tmp_path / "link" / "jobs" / "calm_drum")), "RUNNING")
    assert look(folder) == JobView("runs", "")
    (tmp_path / "other" / "jobs").mkdir(parents=True)
    in_queue(slurm, RunFolder(str(tmp_path / "other" / "jobs" / "calm_drum")), "RUNNING")
    assert look(folder).state == "gone"


def test_nobody_answers(slurm, folder):
    slurm.silent("squeue")
    assert look(folder) == JobView(
        "unknown", "Slurm does not answer: squeue: Unable to contact slurm controller (connect failure)"
    )
    slurm.says("squeue")
    slurm.silent("scontrol")
    assert look(folder).state == "unknown"


@pytest.mark.parametrize("garbage", ["", "garbage\n", "JobId=7 JobName=calm"])
def test_an_answer_that_cannot_be_read_ends_no_job(slurm, folder, garbage):
    slurm.says("scontrol", garbage)
    assert look(folder).state == "unknown"


def test_a_look_never_raises(slurm, folder):
    folder.write(folder.plan, "garbage")
    folder.write(folder.engine, '{"slurm_job_id": "7; rm -rf /"}')
    os.utime(folder.events, (0, 0))
    assert look(folder).state == "gone"
    os.unlink(folder.events)
    assert look(folder) == JobView("unknown", "the run folder cannot be read: No such file or directory")
    for program in list(slurm.bin.iterdir()):
        program.unlink()
    assert look(folder).state == "unknown"


def test_many_looks_ask_once(slurm, folder, clock):
    in_queue(slurm, folder, "RUNNING")
    asked = SlurmEngine()
    for _ in range(5):
        asked.view_job(folder, may_withdraw=True)
    assert len(slurm.calls("squeue")) == 1
    clock.now += 2
    asked.view_job(folder, may_withdraw=True)
    assert len(slurm.calls("squeue")) == 2


def test_a_silence_is_remembered_as_long(slurm, folder, clock):
    slurm.silent("squeue")
    asked = SlurmEngine()
    assert [asked.view_job(folder, may_withdraw=True).state for _ in range(3)] == ["unknown"] * 3
    assert len(slurm.calls("squeue")) == 1
    in_queue(slurm, folder, "RUNNING")
    clock.now += 2
    assert asked.view_job(folder, may_withdraw=True).state == "runs"


# Cancel.


def test_one_that_waits_is_withdrawn_and_one_whose_cancel_nobody_heard_when_it_is_looked_at(slurm, folder):
    SlurmEngine().withdraw(folder)
    assert slurm.calls("scancel") == ["--state=PENDING 7"]
    in_queue(slurm, folder, "PENDING", "Priority")
    look(folder)
    assert len(slurm.calls("scancel")) == 1
    folder.write(folder.cancel, "{}")
    look(folder)
    assert len(slurm.calls("scancel")) == 2


@pytest.mark.parametrize("reason", ["Priority", "BadConstraints"])
def test_to_view_a_job_withdraws_nothing(slurm, folder, reason):
    in_queue(slurm, folder, "PENDING", reason)
    remembered(slurm, "PENDING", Reason=reason)
    folder.write(folder.cancel, "{}")
    viewed = SlurmEngine().view_job(folder)
    assert slurm.calls("scancel") == []
    assert look(folder) == viewed
    assert slurm.calls("scancel")


def test_a_withdrawal_that_slurm_refuses_is_no_error_and_a_silence_is(slurm, folder):
    slurm.says("scancel", err="scancel: error: Kill job error on job id 7: Invalid job id specified\n", rc=1)
    SlurmEngine().withdraw(folder)
    slurm.silent("scancel")
    with pytest.raises(EngineError):
        SlurmEngine().withdraw(folder)


def test_what_is_shown_of_a_job(slurm, folder):
    in_queue(slurm, folder, "RUNNING")
    assert SlurmEngine().describe_job(folder) == {
        "slurm_job_id": "7",
        "state": "RUNNING",
        "partition": "main",
    }
    slurm.silent("squeue")
    assert SlurmEngine().describe_job(folder)["error"].startswith("squeue: Unable to contact")
    os.unlink(folder.engine)
    slurm.says("squeue")
    assert SlurmEngine().describe_job(folder) == {"slurm_job_id": None}


def test_the_place_in_line_is_shown(slurm, folder):
    queue = f"7|PENDING|Priority|N/A|main|{folder.path}"
    slurm.says("squeue", first=f'case "$*" in *%Q*) printf "9|6\\n1|7\\n";; *) echo "{queue}";; esac')
    assert SlurmEngine().describe_job(folder) == {
        "slurm_job_id": "7",
        "state": "PENDING",
        "partition": "main",
        "slurm_reason": "Priority",
        "start_estimate": None,
        "position": 2,
        "waiting": 2,
    }


# Claims.


@pytest.fixture(params=["links", "no links"])
def file_system(request, monkeypatch):
    """Some, such as those of mounted object stores, have no hard links."""
    if request.param == "no links":

        def refuse(*_):
            raise PermissionError(1, "Operation not permitted")

        monkeypatch.setattr(os, "link", refuse)


def test_exactly_one_job_of_slurm_can_have_a_run_folder(folder, file_system):
    os.unlink(folder.engine)
    start = threading.Barrier(16)

    def attempt(number):
        start.wait()
        try:
            claim(folder, str(number))
        except FileExistsError:
            return None
        return str(number)

    with ThreadPoolExecutor(16) as pool:
        won = [number for number in pool.map(attempt, range(1, 17)) if number]
    assert won == [number_of(folder)]
    assert [name for name in os.listdir(folder.path) if name.startswith("engine")] == ["engine.json"]


def test_processes_too(folder, file_system):
    os.unlink(folder.engine)
    reader, writer = os.pipe()
    children = []
    for number in range(1, 9):
        child = os.fork()
        if child == 0:
            os.close(writer)
            os.read(reader, 1)  # until all are there
            try:
                claim(folder, str(number))
            except FileExistsError:
                os._exit(0)
            os._exit(number)
        children.append(child)
    os.close(reader)
    os.close(writer)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert [str(code) for code in codes if code] == [number_of(folder)]


def test_whoever_submits_and_the_job_itself_both_win(folder, file_system):
    """They come at once, with the same number; the one that is second must never find half a file."""
    for _ in range(50):
        os.unlink(folder.engine)
        start = threading.Barrier(2)

        def attempt(_, start=start):
            start.wait()
            claim(folder, "7")

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(attempt, range(2)))
        assert number_of(folder) == "7"


def test_a_batch_step_that_has_no_right_to_the_folder_is_told_whose_it_is(folder, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert SlurmEngine().claim(folder) == ""
    monkeypatch.setenv("SLURM_JOB_ID", "8")
    assert SlurmEngine().claim(folder) == "this run folder is of job 7 of Slurm, and this is job 8"


def test_a_number_that_is_none_is_not_one(folder):
    for text in (
        "",
        "garbage",
        "[]",
        '{"slurm_job_id": "x"}',
        '{"slurm_job_id": "-7"}',
        '{"slurm_job_id": null}',
    ):
        folder.write(folder.engine, text)
        assert number_of(folder) == "", text


# Submission, as users do it.


@pytest.fixture
def site(slurm, clock, drumline_home):
    """A slurm compute, attached."""
    slurm.says("sbatch", "41\n")
    slurm.says("squeue")
    slurm.says("scontrol", "PartitionName=main Default=YES\n")
    computes = drumline_home / "computes"
    computes.mkdir(parents=True)
    (computes / "cluster.yml").write_text("name: cluster\ntype: slurm\npartition: main\n")
    return drumline_home


def job(**changed):
    return command(name="calm_drum", command="true", compute="cluster", **changed)


def submitted(**changed):
    return submit.submit(job(**changed)).folder


def test_a_job_is_handed_over(slurm, site):
    folder = submitted()
    assert number_of(folder) == "41"
    assert slurm.given("sbatch") == planning.render(planning.plan(job()))
    assert [type(event) for event in folder.read_events()] == [e.JobSubmitted]


def test_what_slurm_refuses_leaves_nothing(slurm, site):
    err = "sbatch: error: Batch job submission failed: Invalid account\n"
    slurm.says("sbatch", err=err, rc=1)
    made = job()
    with pytest.raises(NotSubmittedError, match="sbatch: Batch job submission failed: Invalid account"):
        submit.submit(made)
    assert os.listdir(site / "jobs") == []
    assert made.name == "calm_drum"
    assert len(slurm.calls("sbatch")) == 1


def test_what_drumline_refuses_never_comes_to_slurm(slurm, site):
    with pytest.raises(PlanError, match="sbatch has no option --partion"):
        submitted(properties={}, resources={"properties": {"slurm": {"partion": "x"}}})
    assert slurm.calls("sbatch") == []
    assert not (site / "jobs").exists()


def test_a_controller_that_is_away_for_a_while_is_waited_for(slurm, site, clock, capsys):
    slurm.silent("sbatch", "squeue")
    clock.hooks = [lambda: None, lambda: slurm.says("sbatch", "41\n")]
    folder = submitted()
    assert number_of(folder) == "41"
    assert clock.slept == [1.0, 1.5]
    said = capsys.readouterr().err
    assert said.count("waiting for Slurm: sbatch: Unable to contact slurm controller") == 1


def test_one_that_had_arrived_after_all_is_not_submitted_twice(slurm, site, clock):
    slurm.silent("sbatch")
    path = site / "jobs" / "calm_drum"
    clock.hooks = [
        lambda: slurm.says("squeue", f"40|RUNNING|None|N/A|main|/x\n42|PENDING|None|N/A|main|{path}\n")
    ]
    folder = submitted()
    assert number_of(folder) == "42"
    assert len(slurm.calls("sbatch")) == 1


def test_an_sbatch_that_hangs_is_asked_again(slurm, site, clock, monkeypatch):
    monkeypatch.setattr(slurm_commands, "SUBMIT_TIMEOUT_S", 0.1)
    slurm.hangs("sbatch")
    clock.hooks = [lambda: slurm.says("sbatch", "43\n")]
    assert number_of(submitted()) == "43"


def test_one_that_nobody_takes_has_failed_and_says_so(slurm, site, clock, monkeypatch):
    monkeypatch.setattr(engine, "PATIENCE_S", 5.0)
    slurm.silent("sbatch", "squeue")
    with pytest.raises(EngineError, match="Slurm did not take the job") as error:
        submitted()
    assert not isinstance(error.value, NotSubmittedError)
    assert error.value.hint == "if the job comes to Slurm after all, it ends at once"
    assert clock.now - NOW >= 5.0
    outcome = recovery.recover(RunFolder.for_job("calm_drum"))
    assert (outcome.status, outcome.exit_code) == (status.FAILED, 1)
    assert outcome.reason.startswith("Slurm did not take the job: sbatch: Unable to contact")


def test_a_refusal_after_a_silence_leaves_nothing(slurm, site, clock):
    slurm.silent("sbatch")
    clock.hooks = [lambda: slurm.says("sbatch", err="sbatch: error: Invalid qos\n", rc=1)]
    with pytest.raises(NotSubmittedError):
        submitted()
    assert os.listdir(site / "jobs") == []


def test_a_job_that_waits_can_be_canceled_and_is_then_over(slurm, site, clock):
    folder = submitted()
    slurm.says("scancel")
    slurm.says("squeue", f"41|PENDING|Priority|N/A|main|{folder.path}\n")
    outcome = recovery.recover(folder)
    assert (outcome.status, outcome.reason) == (
        status.QUEUED,
        "others before it have a higher priority (Priority)",
    )
    assert ending.cancel("calm_drum", by="ann")
    assert slurm.calls("scancel") == ["--state=PENDING 41"]
    slurm.says("squeue")
    remembered(slurm, "CANCELLED", batch_host=None)
    clock.now += 2
    outcome = recovery.recover(folder)
    assert (outcome.status, outcome.exit_code) == (status.CANCELED, 130)
    assert outcome.reason == "canceled by ann before it started"
    assert fold(folder.read_events()).reason == outcome.reason


def test_a_job_without_a_number_is_asked_for_by_its_folder_from_the_very_beginning(slurm, site, monkeypatch):
    """A full disk, at the moment when its number was to be written down."""

    def full(folder, number):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(engine, "claim", full)
    folder = submitted()
    assert not os.path.exists(folder.engine)
    slurm.says("squeue", f"41|RUNNING|None|N/A|main|{folder.path}\n")
    assert recovery.recover(folder).status == status.NOT_STARTED
    assert look(folder).state == "runs"


# Computes.


def test_what_stands_in_the_way_of_a_compute(slurm, tmp_path):
    slurm.says("scontrol", "PartitionName=main Default=YES\nPartitionName=spot\n")
    check = SlurmEngine().check
    assert check({"partition": "main,spot", "spot_partition": "spot", "folder": str(tmp_path)}) == []
    assert check({"partition": "main,x", "spot_partition": "y", "folder": "/no/such"}) == [
        "partition: Slurm has no partition 'x'; it has main, spot",
        "spot_partition: Slurm has no partition 'y'; it has main, spot",
        "folder: there is no /no/such on this machine",
    ]
    slurm.silent("scontrol")
    (only,) = check({"partition": "main"})
    assert "Unable to contact" in only


def test_a_compute_and_its_nodes(slurm):
    said = {
        "--version": "slurm-wlm 22.05.8",
        "partition": "PartitionName=main Default=YES State=UP MaxTime=UNLIMITED",
        "node": "NodeName=e1 CPUTot=8 CPUAlloc=2 Gres=gpu:a100:4(S:0-1),gpu:v100:2 RealMemory=100 NodeAddr=10.0.0.1 "
        "State=IDLE Partitions=main\n"
        "NodeName=e2 CPUTot=x Gres=gpu:4(S:0) State=DOWN* Partitions=main,spot Reason=disk full [root@2026]\n"
        "NodeName=e3 State=IDLE Partitions=other",
    }
    cases = "".join(f'*{word}*) echo "{text}";;\n' for word, text in said.items())
    slurm.says("scontrol", first=f'case "$*" in\n{cases}esac')
    assert SlurmEngine().describe({"partition": "main"}) == {
        "version": "22.05.8",
        "partition": "main",
        "state": "UP",
        "time_limit": "UNLIMITED",
        "nodes": {"down*": 1, "idle": 1},
    }
    first, second = SlurmEngine().list_nodes({"partition": "main"})
    assert (first.gpus, first.cores, first.cores_in_use, first.reason) == (6, 8, 2, None)
    assert (second.gpus, second.cores, second.reason) == (4, None, "disk full")
    assert len(SlurmEngine().list_nodes({})) == 3
    assert SlurmEngine().describe({})["partition"] == "main"


def test_the_shape_of_a_node_is_what_the_compute_says():
    shapes = SlurmEngine().shapes
    compute = {"cores_per_node": 4, "instance_types": {"big": {"gpus_per_node": 8}}}
    assert [(one.core_count, one.gpu_count) for one in shapes(2, compute)] == [(4, 0), (4, 0)]
    assert [(one.core_count, one.gpu_count) for one in shapes(1, compute, "big")] == [(4, 8)]
    assert [(one.core_count, one.gpu_count) for one in shapes(1, {})] == [(0, 0)]


def test_the_claim_holds_what_others_read(folder):
    with open(folder.engine) as file:
        assert json.load(file) == {"slurm_job_id": "7"}
    assert os.stat(folder.engine).st_mode & 0o777 == 0o600


def test_a_number_of_another_slurm_says_nothing_of_this_job(slurm, folder):
    """A home that two clusters share, or a controller that counts from 1 again."""
    slurm.says(
        "scontrol", "JobId=7 JobName=x UserId=bob(7) JobState=COMPLETED EndTime=Unknown WorkDir=/home/bob\n"
    )
    found = look(folder)
    assert (found.state, "is another" in found.reason) == ("unknown", True)


def test_slurm_gets_one_half_of_a_secret_and_the_run_folder_the_other(slurm, site, monkeypatch):
    monkeypatch.setenv("TOKEN", "sesame")
    seen = slurm.bin.parent / "environment"
    slurm.says("sbatch", "41\n", first=f"/usr/bin/env > {seen}")
    folder = submitted(drumline={"secrets": ["TOKEN"]})
    given = dict(line.partition("=")[::2] for line in seen.read_text().splitlines())
    assert "TOKEN" not in given
    files = [path for path in (*site.rglob("*"), seen) if path.is_file()]
    assert not [path for path in files if b"sesame" in path.read_bytes()]
    monkeypatch.setenv(secrets.VARIABLE, given[secrets.VARIABLE])
    assert _read_secrets(SupervisedFolder(folder.path), "", batch=True) == {"TOKEN": "sesame"}
    assert secrets.VARIABLE not in os.environ


def test_a_secret_of_a_job_that_is_submitted_once_more_reaches_whichever_starts(slurm, site, monkeypatch):
    """As where a driver was killed, and its job had come to Slurm."""
    monkeypatch.setenv("TOKEN", "sesame")
    seen = slurm.bin.parent / "environment"
    slurm.says("sbatch", "41\n", first=f"/usr/bin/env > {seen}")
    folder = submitted(drumline={"secrets": ["TOKEN"]})
    first = seen.read_text()
    SlurmEngine().submit(folder, None, secrets.to_text({"TOKEN": "another"}))
    for given, value in ((first, "sesame"), (seen.read_text(), "another")):
        variables = dict(line.partition("=")[::2] for line in given.splitlines())
        monkeypatch.setenv(secrets.VARIABLE, variables[secrets.VARIABLE])
        assert _read_secrets(SupervisedFolder(folder.path), "", batch=True) == {"TOKEN": value}


def test_no_pad_of_a_secret_outlives_the_job(slurm, site, clock, monkeypatch):
    monkeypatch.setenv("TOKEN", "sesame")
    slurm.says("sbatch", "41\n")
    folder = submitted(drumline={"secrets": ["TOKEN"]})
    assert os.path.exists(folder.secrets)
    # Whoever wrote this was killed before anything else.
    folder.append(e.JobEnded(NOW, status.COMPLETED, 0, ""))
    recovery.recover(folder)
    assert not os.path.exists(folder.secrets)


def test_no_pad_is_left_of_a_job_that_slurm_did_not_take(slurm, site, clock, monkeypatch):
    monkeypatch.setenv("TOKEN", "sesame")
    slurm.silent("sbatch", "squeue")
    with pytest.raises(EngineError, match="Slurm did not take the job"):
        submitted(drumline={"secrets": ["TOKEN"]})
    assert list(site.rglob("events.jsonl"))
    assert list(site.rglob("secrets.pad")) == []
