"""Slurm's commands, whatever they say or do not say."""

import os
import sys
from types import ModuleType

import pytest

from drumline.contract.errors import EngineError
from drumline.engines.slurm import slurm_commands
from drumline.engines.slurm.engine import ENGINE
from drumline.engines.slurm.slurm_commands import InQueue, RefusedError, SilentError, Slurm

JOB = (
    "JobId=7 JobName=calm_drum UserId=ann(1000) GroupId=ann(1000) MCS_label=N/A Priority=10 Nice=0 Account=(null) "
    "QOS=(null) JobState=RUNNING Reason=None Dependency=(null) Requeue=1 Restarts=0 BatchFlag=1 ExitCode=0:0 "
    "RunTime=00:01:00 EndTime=2026-01-02T03:04:05 Partition=main NodeList=e[1-2] BatchHost=e1 "
    "Comment={} StdErr=/a/log WorkDir=/a b/c Power= \n"
)


@pytest.mark.parametrize(
    ("out", "number"),
    [
        ("123\n", "123"),
        ("123", "123"),
        ("123;cluster\n", "123"),
        ("Welcome to Big!\nYou have used 5 of 100 hours.\n\n123\n", "123"),
        ("123\nYour job costs 3 hours.\n", "123"),
        ("  123;big \r\n\n", "123"),
    ],
)
def test_the_number_of_a_new_job_is_found_among_what_a_site_says(slurm, out, number):
    slurm.says("sbatch", out)
    assert Slurm().sbatch("#!/bin/bash\n", {}) == number


@pytest.mark.parametrize(
    "out", ["", "\n", "Submitted batch job 123\n", "garbage", "12a", b"\xff\xfe\x00", "x" * 200]
)
def test_an_answer_without_a_number_is_no_answer(slurm, out):
    """The job may be there or not: whoever asked looks."""
    slurm.says("sbatch", out)
    with pytest.raises(SilentError, match="which is no job's number"):
        Slurm().sbatch("", {})


def test_sbatch_gets_the_script_and_an_environment_that_says_nothing_for_it(slurm, monkeypatch):
    for name in (
        "SBATCH_EXPORT",
        "SBATCH_ACCOUNT",
        "SLURM_JOB_ID",
        "SLURM_EXPORT_ENV",
        "SLURM_CLUSTERS",
        "OTHER",
    ):
        monkeypatch.setenv(name, "x")
    seen = slurm.bin.parent / "environment"
    slurm.says("sbatch", "1\n", first=f"/usr/bin/env > {seen}")
    Slurm("/etc/other.conf").sbatch("#!/bin/bash\nécho\n", {"SBATCH_EXPORT": None})
    assert slurm.given("sbatch") == "#!/bin/bash\nécho\n"
    assert slurm.calls("sbatch") == ["--parsable"]
    names = dict(line.split("=", 1) for line in seen.read_text().splitlines())
    assert {name for name in names if name.startswith(("SBATCH_", "SLURM_", "OTHER"))} == {
        "SBATCH_ACCOUNT",
        "SLURM_CLUSTERS",
        "SLURM_CONF",
        "OTHER",
    }
    assert names["SLURM_CONF"] == "/etc/other.conf"


def test_a_job_has_no_variables_of_the_notebook_that_submits_it(slurm, monkeypatch):
    monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    monkeypatch.setenv("FORCE_COLOR", "3")
    seen = slurm.bin.parent / "environment"
    slurm.says("sbatch", "1\n", first=f"/usr/bin/env > {seen}")
    Slurm().sbatch("#!/bin/bash\n", {})
    assert "MPLBACKEND" not in seen.read_text()
    assert "FORCE_COLOR=3\n" in seen.read_text()


def test_nobodys_own_choice_of_columns_or_jobs_is_taken(slurm, monkeypatch):
    for name in ("SQUEUE_FORMAT", "SQUEUE_PARTITION", "SQUEUE_NAMES", "SACCT_FORMAT", "SLURM_TIME_FORMAT"):
        monkeypatch.setenv(name, "relative")
    seen = slurm.bin.parent / "environment"
    slurm.says("squeue", first=f"/usr/bin/env > {seen}")
    assert Slurm().mine() == {}
    assert "SQUEUE_" not in seen.read_text()
    assert "SACCT_" not in seen.read_text()
    assert "SLURM_TIME_FORMAT=standard\n" in seen.read_text()
    assert os.environ["SQUEUE_FORMAT"] == "relative"


@pytest.mark.parametrize(
    "err",
    [
        "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)\n",
        "sbatch: error: Unable to establish control machine address\n"
        "sbatch: error: Batch job submission failed: No error\n",
        "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n",
        "sbatch: error: slurm_receive_msg: Zero Bytes were transmitted or received\n",
        "sbatch: error: If munged is up, restart with --num-threads=10\n"
        "sbatch: error: Munge encode failed: Failed to access /run/munge/munge.socket.2\n",
        "sbatch: error: Batch job submission failed: Protocol authentication error\n",
        "slurm_load_jobs error: Slurm backup controller in standby mode\n",
        "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying\n",
        "sbatch: error: Batch job submission failed: Resource temporarily unavailable\n",
        "sbatch: error: Batch job submission failed: Connection refused\n",
    ],
)  # fmt: skip
def test_nobody_answers(slurm, err):
    slurm.says("sbatch", err=err, rc=1)
    with pytest.raises(SilentError):
        Slurm().sbatch("", {})


@pytest.mark.parametrize(
    ("err", "message"),
    [
        ("sbatch: error: invalid partition specified: x\n"
         "sbatch: error: Batch job submission failed: Invalid partition name specified\n",
         "sbatch: Batch job submission failed: Invalid partition name specified"),
        ("sbatch: option '--partition' requires an argument\nTry \"sbatch --help\" for more information\n",
         'sbatch: Try "sbatch --help" for more information'),
        ("sbatch: fatal: --mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive.\n",
         "sbatch: fatal: --mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive"),
        ("", "sbatch: exit code 1"),
    ],
)  # fmt: skip
def test_slurm_says_no_in_its_own_words(slurm, err, message):
    slurm.says("sbatch", err=err, rc=1)
    with pytest.raises(RefusedError) as error:
        Slurm().sbatch("", {})
    assert error.value.message == message


def test_a_refusal_on_standard_output_is_told_too(slurm):
    slurm.says("sbatch", "You have no hours left.\n", rc=3)
    with pytest.raises(RefusedError, match="You have no hours left"):
        Slurm().sbatch("", {})


def test_a_command_that_was_killed_has_decided_nothing(slurm):
    slurm.says("sbatch", first="kill -9 $$")
    with pytest.raises(SilentError, match="exit code -9"):
        Slurm().sbatch("", {})


def test_a_command_that_hangs_is_given_up(slurm, monkeypatch):
    monkeypatch.setattr(slurm_commands, "TIMEOUT_S", 0.1)
    monkeypatch.setattr(slurm_commands, "SUBMIT_TIMEOUT_S", 0.1)
    for program in ("sbatch", "squeue", "scontrol", "sacct", "scancel"):
        slurm.hangs(program)
    with pytest.raises(SilentError, match="sbatch has not answered for"):
        Slurm().sbatch("", {})
    with pytest.raises(SilentError, match="squeue has not answered for"):
        Slurm().mine()
    with pytest.raises(SilentError, match="scontrol has not answered for"):
        Slurm().job("7")
    with pytest.raises(SilentError, match="scancel has not answered for"):
        Slurm().withdraw("7")
    assert Slurm().read_accounting("7") is None


def test_a_machine_without_slurm_is_told_where_there_is_one(slurm):
    with pytest.raises(RefusedError, match="there is no sbatch on this machine") as error:
        Slurm().sbatch("", {})
    assert "login node" in error.value.hint
    with pytest.raises(EngineError):
        Slurm().mine()


@pytest.mark.parametrize(
    ("err", "is_here"),
    [
        ("scontrol: fatal: Could not establish a configuration source\n", False),
        ("slurm_load_partitions: Unable to contact slurm controller (connect failure)\n", True),
        ("scontrol: error: Access denied\n", True),
    ],
)
def test_commands_that_know_of_no_cluster_are_no_slurm(slurm, err, is_here):
    """As Debian's slurm-client is installed; a cluster that is down is one."""
    slurm.says("scontrol", err=err, rc=1)
    assert ENGINE.is_here() is is_here
    slurm.says("scontrol", "PartitionName=main\n")
    assert ENGINE.is_here()
    (slurm.bin / "scontrol").unlink()
    assert not ENGINE.is_here()


def test_a_program_that_is_none_is_no_answer(slurm):
    (slurm.bin / "squeue").write_text("#!/no/such/interpreter\n")
    (slurm.bin / "squeue").chmod(0o700)
    with pytest.raises(SilentError, match="could not be started: No such file"):
        Slurm().mine()


def test_this_users_jobs(slurm):
    slurm.says(
        "squeue",
        "8|PENDING|ReqNodeNotAvail, UnavailableNodes:e[1-2]|2026-01-02T03:04:05|main|/a|b/c d \n"
        "9_[1-5]|PENDING|Priority|N/A|main,spot|/x\n"
        "7|RUNNING|None|2026-01-01T00:00:00|main|/e/ü\u2028x\n",
    )
    assert Slurm().mine() == {
        "8": InQueue(
            "8", "PENDING", "ReqNodeNotAvail, UnavailableNodes:e[1-2]", "2026-01-02T03:04:05", "main", "/a|b/c d "
        ),
        "9_[1-5]": InQueue("9_[1-5]", "PENDING", "Priority", "", "main,spot", "/x"),
        "7": InQueue("7", "RUNNING", "None", "2026-01-01T00:00:00", "main", "/e/ü\u2028x"),
    }  # fmt: skip
    (call,) = slurm.calls("squeue")
    assert f"--user={os.getuid()}" in call.split()


@pytest.mark.parametrize(
    "out", ["garbage\n", "7|RUNNING|None|N/A\n", "7|running|None|N/A|main|/a\n", b"\xff|\xfe|\n"]
)
def test_a_queue_that_cannot_be_read_is_no_answer_for_that_would_end_jobs(slurm, out):
    slurm.says("squeue", "1|RUNNING|None|N/A|main|/a\n" + out if isinstance(out, str) else out)
    with pytest.raises(SilentError, match="which is no line of a queue"):
        Slurm().mine()


def test_bytes_that_are_no_utf_8_do_not_hide_the_rest(slurm):
    slurm.says("squeue", b"7|RUNNING|None|N/A|main|/a\xffb\n8|PENDING|None|N/A|main|/c\n")
    assert set(Slurm().mine()) == {"7", "8"}


def test_a_queue_of_many_jobs(slurm):
    slurm.says(
        "squeue", "".join(f"{number}|PENDING|Priority|N/A|main|/a/{number}\n" for number in range(50_000))
    )
    assert len(Slurm().mine()) == 50_000


def test_the_place_in_line(slurm):
    slurm.says("squeue", "10|9\n30|12\n30|7_[1-3]\n20|8\nbanner\n|\n5|11\n")
    assert Slurm().position("8", "main") == (3, 5)
    assert Slurm().position("12", "main") == (2, 5)
    assert Slurm().position("99", "main") is None
    slurm.says("squeue", "")
    assert Slurm().position("8", "main") is None


def test_a_job_as_the_controller_knows_it(slurm):
    slurm.says("scontrol", JOB.format("hello"))
    job = Slurm().job("7")
    assert job is not None
    names = ("JobState", "Reason", "ExitCode", "BatchHost", "EndTime", "Restarts")
    assert [job[name] for name in names] == ["RUNNING", "None", "0:0", "e1", "2026-01-02T03:04:05", "0"]
    assert slurm.calls("scontrol") == ["--oneliner show job 7"]


def test_what_a_user_has_written_does_not_speak_for_slurm(slurm):
    slurm.says("scontrol", JOB.format("x JobState=COMPLETED ExitCode=0:9 Restarts=5 Reason=me"))
    job = Slurm().job("7")
    assert job is not None
    assert [job[name] for name in ("JobState", "ExitCode", "Restarts")] == ["RUNNING", "0:0", "0"]
    assert job["Reason"] == "None"


def test_a_job_that_slurm_has_forgotten_is_none(slurm):
    slurm.says("scontrol", err="slurm_load_jobs error: Invalid job id specified\n", rc=1)
    assert Slurm().job("7") is None


@pytest.mark.parametrize("out", ["", "\n", "garbage\n", "JobId=7 JobName=x UserId=ann(10", b"\x00\xff"])
def test_an_empty_answer_or_one_cut_short_is_not_a_job(slurm, out):
    slurm.says("scontrol", out)
    with pytest.raises(SilentError, match="which is no job"):
        Slurm().job("7")


def test_another_refusal_is_told(slurm):
    slurm.says("scontrol", err="scontrol: error: Access/permission denied\n", rc=1)
    with pytest.raises(RefusedError, match="permission denied"):
        Slurm().job("7")


def test_nodes_and_their_reasons(slurm):
    slurm.says(
        "scontrol",
        "NodeName=e1 Arch=x86_64 CPUTot=8 Gres=gpu:2 State=DOWN*+DRAIN RealMemory=100 Partitions=main,spot "
        "OS=Linux 6.1 #1 SMP Reason=disk is full, see =3 [root@2026-01-01T00:00:00] Comment=x\n"
        "NodeName=e2 State=IDLE Reason=a b\n"
        "NodeName=e3 State=IDLE\n"
        "\nbanner\n",
    )
    nodes = Slurm().nodes()
    assert [node["NodeName"] for node in nodes] == ["e1", "e2", "e3"]
    assert [node.get("Reason") for node in nodes] == ["disk is full, see =3", "a b", None]
    assert [node["State"] for node in nodes] == ["DOWN*+DRAIN", "IDLE", "IDLE"]
    assert Slurm().nodes("e[1-2]")
    assert slurm.calls("scontrol")[-1] == "--oneliner show node e[1-2]"


def test_partitions(slurm):
    slurm.says("scontrol", "PartitionName=main Default=YES GraceTime=5\nPartitionName=spot Default=NO\n")
    assert [one["PartitionName"] for one in Slurm().partitions()] == ["main", "spot"]
    slurm.says("scontrol", err="Partition nope not found\n", rc=1)
    assert Slurm().partition("nope") is None


def test_a_partition_of_a_controller_that_is_down_is_not_missing(slurm):
    slurm.silent("scontrol")
    with pytest.raises(SilentError):
        Slurm().partition("main")


def test_the_configuration(slurm):
    slurm.says(
        "scontrol", "Configuration data as of 2026\nKillWait       = 30 sec\nProctrackType = a=b\n\nx\n"
    )
    config = Slurm().config()
    assert (config["KillWait"], config["ProctrackType"]) == ("30 sec", "a=b")


@pytest.mark.parametrize(
    ("out", "known"),
    [
        ("CANCELLED by 1000|0:15\n", ("CANCELLED by 1000", "0:15")),
        ("PREEMPTED|0:0\nCOMPLETED|0:0\n", ("COMPLETED", "0:0")),
        ("Welcome\nCOMPLETED|0:0\n\n", ("COMPLETED", "0:0")),
        ("", None),
        ("a|b|c\n", None),
    ],
)
def test_what_the_accounting_remembers(slurm, out, known):
    slurm.says("sacct", out)
    assert Slurm().read_accounting("7") == known


def test_a_site_without_accounting(slurm):
    assert Slurm().read_accounting("7") is None
    slurm.says("sacct", err="Slurm accounting storage is disabled\n", rc=1)
    assert Slurm().read_accounting("7") is None


def test_a_withdrawal_spares_one_that_runs(slurm):
    slurm.says("scancel")
    Slurm().withdraw("7")
    assert slurm.calls("scancel") == ["--state=PENDING 7"]


def test_the_version(slurm):
    slurm.says("scontrol", "slurm-wlm 22.05.8\n")
    assert Slurm().version() == "22.05.8"
    slurm.says("scontrol", "")
    assert Slurm().version() == ""
