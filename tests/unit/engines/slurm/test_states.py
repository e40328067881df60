"""Slurm's states and reasons, in ours and in plain words."""

import pytest

from drumline.engines.slurm import jobs

# squeue(1) of 22.05, JOB STATE CODES.
OF_22_05 = """
BOOT_FAIL CANCELLED COMPLETED CONFIGURING COMPLETING DEADLINE FAILED NODE_FAIL OUT_OF_MEMORY PENDING PREEMPTED RUNNING
RESV_DEL_HOLD REQUEUE_FED REQUEUE_HOLD REQUEUED RESIZING REVOKED SIGNALING SPECIAL_EXIT STAGE_OUT STOPPED SUSPENDED
TIMEOUT
""".split()  # noqa: SIM905 - a list of words

# What newer ones add. Source: job_state_codes of the documentation of 24.05 and 25.05.
OF_25_05 = ["LAUNCH_FAILED", "RECONFIG_FAIL", "POWER_UP_NODE", "UPDATE_DB", "EXPEDITING"]

# squeue(1) of 22.05, JOB REASON CODES, less the families with a *.
REASONS = """
AssociationJobLimit AssociationResourceLimit AssociationTimeLimit BadConstraints BeginTime Cleaning Dependency
DependencyNeverSatisfied FrontEndDown InactiveLimit InvalidAccount InvalidQOS JobHeldAdmin JobHeldUser JobLaunchFailure
Licenses NodeDown NonZeroExitCode PartitionDown PartitionInactive PartitionNodeLimit PartitionTimeLimit Priority Prolog
QOSJobLimit QOSResourceLimit QOSTimeLimit QOSUsageThreshold ReqNodeNotAvail Reservation Resources SystemFailure
TimeLimit WaitingForScheduling
""".split()  # noqa: SIM905 - a list of words


def test_every_state_of_slurm_has_a_phase():
    assert set(jobs.PHASES) == {*OF_22_05, *OF_25_05}
    assert set(jobs.PHASES.values()) == {jobs.WAITS, jobs.STARTS, jobs.RUNS, jobs.ENDED}


def test_every_end_has_words():
    ends = [state for state, phase in jobs.PHASES.items() if phase == jobs.ENDED]
    for state in ends:
        assert jobs.why_ended(state).endswith(f" ({state} in Slurm)")
        assert "it is over" not in jobs.why_ended(state), state


@pytest.mark.parametrize(
    ("state", "phase"),
    [
        ("PENDING", jobs.WAITS),
        ("CONFIGURING", jobs.STARTS),
        ("RUNNING", jobs.RUNS),
        ("SUSPENDED", jobs.RUNS),
        ("COMPLETING", jobs.RUNS),
        ("CANCELLED by 1000", jobs.ENDED),
        ("CANCELLED+", jobs.ENDED),
        ("SOMETHING_NEW", jobs.RUNS),
        ("", jobs.RUNS),
    ],
)
def test_phases(state, phase):
    assert jobs.phase(state) == phase


def test_why_one_that_has_nodes_does_not_go_on():
    assert jobs.explain_halt("RUNNING") == jobs.explain_halt("COMPLETING") == ""
    assert jobs.explain_halt("SUSPENDED") == "Slurm has suspended it; it goes on when Slurm lets it"
    assert jobs.explain_halt("STOPPED") == "Slurm has stopped its processes; it goes on when Slurm lets it"
    assert jobs.explain_halt("SOMETHING_NEW") == "Slurm says SOMETHING_NEW, which is not known here"


@pytest.mark.parametrize(
    ("state", "exit_code", "words"),
    [
        ("TIMEOUT", "0:0", "Slurm's time limit was reached (TIMEOUT in Slurm)"),
        ("FAILED", "1:0", "its batch script failed before its supervisor could say why (FAILED in Slurm)"),
        ("FAILED", "0:9", "its supervisor was killed by SIGKILL (FAILED in Slurm)"),
        ("COMPLETED", "0:15", "its supervisor was killed by SIGTERM (COMPLETED in Slurm)"),
        ("FAILED", "0:99", "its supervisor was killed by signal 99 (FAILED in Slurm)"),
        ("FAILED", "0:x", "its supervisor was killed by signal x (FAILED in Slurm)"),
        ("FAILED", "", "its batch script failed before its supervisor could say why (FAILED in Slurm)"),
        ("FAILED", "0:53",
         "Slurm could not start its batch script; is the run folder there on the node? (FAILED in Slurm)"),
        ("OUT_OF_MEMORY", "0:125", "the batch step ran out of the memory that Slurm allows (OUT_OF_MEMORY in Slurm)"),
        ("NEWER", "", "it is over (NEWER in Slurm)"),
    ],
)  # fmt: skip
def test_why_it_ended(state, exit_code, words):
    assert jobs.why_ended(state, exit_code) == words


def test_every_common_reason_has_plain_words_and_slurms_in_brackets():
    for reason in REASONS:
        words = jobs.why_waits(reason)
        assert words.endswith(f" ({reason})"), reason
        assert not words.startswith("Slurm says"), reason
        assert words == jobs.why_waits(f"({reason})")


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("ReqNodeNotAvail, UnavailableNodes:e[1-3],f2",
         "nodes that it needs are down, drained or reserved: e[1-3],f2 (ReqNodeNotAvail)"),
        ("(ReqNodeNotAvail, UnavailableNodes: e1)",
         "nodes that it needs are down, drained or reserved: e1 (ReqNodeNotAvail)"),
        ("ReqNodeNotAvail, May be reserved for other job",
         "nodes that it needs are down, drained or reserved (ReqNodeNotAvail)"),
        ("ReqNodeNotAvail(Unavailable:e1)", "nodes that it needs are down, drained or reserved (ReqNodeNotAvail)"),
        ("Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions",
         "nodes that it needs are down, drained or reserved (ReqNodeNotAvail)"),
        ("(Nodes required for job are DOWN)", "nodes that it needs are down, drained or reserved (ReqNodeNotAvail)"),
        ("launch failed requeued held",
         "Slurm could not start it, and holds it; scontrol release lets it go (launch failed requeued held)"),
        ("Job requeued in held state",
         "Slurm could not start it, and holds it; scontrol release lets it go (Job requeued in held state)"),
        ("None", "Slurm has not looked at it yet (None)"),
        ("", "Slurm does not say why"),
        ("()", "Slurm does not say why"),
        ("SomethingNewer", "Slurm says SomethingNewer"),
        ("Something of a plugin", "Slurm says Something of a plugin"),
    ],
)  # fmt: skip
def test_why_it_waits(reason, words):
    assert jobs.why_waits(reason) == words


@pytest.mark.parametrize(
    ("word", "words"),
    [
        ("AssocGrpCpuLimit", "its account has as much of its cores in use as it may have"),
        ("AssocGrpGRES", "its account has as much of its GPUs or the like in use as it may have"),
        ("AssocGrpWallLimit", "its account has as much of its time in use as it may have"),
        ("AssocGrpCPURunMinutesLimit", "its account has as much of its core minutes in use as it may have"),
        ("AssocMaxJobsLimit", "its account has as much of its jobs in use as it may have"),
        ("AssocMaxSubmitJobLimit", "its account has as much of its queued jobs in use as it may have"),
        ("AssocMaxWallDurationPerJobLimit", "it asks for more time than its account gives a job"),
        ("AssocMaxCpuPerJobLimit", "it asks for more cores than its account gives a job"),
        ("QOSGrpNodeLimit", "its QOS has as much of its nodes in use as it may have"),
        ("QOSGrpBilling", "its QOS has as much of its billing units in use as it may have"),
        ("QOSMaxGRESPerUser", "its user has as much of the GPUs or the like in use as its QOS allows"),
        ("QOSMaxCpuPerUserLimit", "its user has as much of the cores in use as its QOS allows"),
        ("QOSMaxJobsPerUserLimit", "its user has as much of the jobs in use as its QOS allows"),
        ("QOSMaxNodePerJobLimit", "it asks for more nodes than its QOS gives a job"),
        ("QOSMaxCpuPerNode", "it asks for more cores than its QOS gives a node"),
        ("QOSMaxMemoryPerAccount", "its account has as much of the memory in use as its QOS allows"),
        ("QOSMinCpuNotSatisfied", "it asks for less cores than its QOS wants"),
        ("QOSMinGRES", "it asks for less GPUs or the like than its QOS wants"),
        ("QOSGrpUnknown", "its QOS has as much of its Unknown in use as it may have"),
    ],
)
def test_limits_of_accounts_and_of_qos(word, words):
    assert jobs.why_waits(word) == f"{words} ({word})"
