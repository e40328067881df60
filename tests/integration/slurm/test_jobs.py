"""Jobs on a real Slurm cluster, and what Slurm, its operators and its nodes do to them."""

import contextlib
import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from canary import CANARY, Watch
from cli_jobs import one_rank
from slurm_jobs import COMPUTE, SAVES, WAITS
from waiting import wait_until

from drumline.control.jobs import lookup, recovery

pytestmark = pytest.mark.timeout(300)

LOST = """
    import os, signal
    print("ready", flush=True)
    if os.environ["DRUMLINE_ATTEMPT"] == "0":
        signal.pause()
"""

GOES_ON = """
    import pathlib, time
    print("ready", flush=True)
    while not pathlib.Path("outputs", "go").exists():
        time.sleep(0.05)
"""

FAILS = """
    import os, pathlib, signal, sys, time

    outputs, rank, told = pathlib.Path("outputs"), os.environ["RANK"], []
    signal.signal(signal.SIGTERM, lambda *_: told.append(True))
    if (outputs / "told").exists():
        (outputs / "started-again").touch()
        sys.exit()
    print("ready", flush=True)
    while not ((outputs / "fail").exists() if rank == "0" else told):
        time.sleep(0.05)
    if rank == "0":
        sys.exit(1)
    (outputs / "told").touch()
    while not (outputs / "end").exists():
        time.sleep(0.05)
"""
"""Rank 0 fails when it is let; the others take their time to end after that."""

EXAMPLES = Path(__file__).parents[3] / "examples"
SLOW = pytest.mark.skipif(
    not os.environ.get("DRUMLINE_SLOW"),
    reason="imports that other tests do on this machine; DRUMLINE_SLOW=1 runs it",
)
SPOT = {"queue_settings": {"job_tier": "spot"}}


@pytest.mark.parametrize(
    ("example", "needs", "epochs"),
    [
        ("mpi4py", "mpi4py", 10),
        pytest.param("lightning", "lightning", 1, marks=SLOW),
    ],
)
def test_examples(slurm, cli, example, needs, epochs):
    """The tutorial's is trained by test_pages.py."""
    pytest.importorskip(needs, reason=f"the example needs {needs}, which scripts/test installs")
    done = cli(
        "job",
        "create",
        "-f",
        EXAMPLES / example / "job.yml",
        "--stream",
        "--set",
        f"compute=azureml:{COMPUTE}",
    )
    assert done.rc == 0, done.out[-4000:] + done.err
    assert "accuracy" in done.out
    name = done.out.split("RunId: ")[1].split()[0]
    assert [node["host"] for node in slurm.show(name)["nodes"]] == ["e1", "e2"]


def test_values_of_variables_are_in_no_command_line(slurm):
    """Of sbatch, srun and its tasks, nor of what the agents start: other users of the nodes can read these."""
    with Watch() as watch:
        slurm.begin(GOES_ON, environment_variables={"API_TOKEN": CANARY})
        watch.another_round()
        (slurm.home / "jobs" / "job" / "outputs" / "go").touch()
        assert slurm.wait_for_end()["status"] == "Completed"
    assert watch.seen == {}


def test_ranks_have_the_core_limit_of_who_submits(slurm):
    """Supervisor and agents have none, and Slurm gives each process the limits of the one that starts it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    if hard != resource.RLIM_INFINITY:
        pytest.skip("nobody may write cores here")
    resource.setrlimit(resource.RLIMIT_CORE, (1 << 20, hard))
    try:
        slurm.create("import resource; print(resource.getrlimit(resource.RLIMIT_CORE)[0])")
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))
    assert slurm.wait_for_end()["status"] == "Completed"
    assert slurm.logs() == [f"{1 << 20}\n"] * 4


def test_a_job_in_line_says_why_where_and_when(slurm):
    other = slurm.fill()
    slurm.create(WAITS)
    slurm.create(WAITS, "second")
    shown = slurm.wait_for("Queued")
    wait_until(
        lambda: slurm.show("second")["slurm"].get("slurm_reason") == "Priority", what="Slurm to look at both"
    )
    shown, second = slurm.show(), slurm.show("second")
    assert shown["reason"].startswith("nodes that it needs are busy (Resources)")
    assert second["reason"].startswith("others before it have a higher priority (Priority)")
    assert [(one["slurm"]["position"], one["slurm"]["waiting"]) for one in (shown, second)] == [
        (1, 2),
        (2, 2),
    ]
    slurm.cluster.run("scancel", other)
    slurm.wait_until_ready()
    slurm.wait_until_ready("second")


def test_an_operator_cancels_it_in_line_and_running(slurm):
    other = slurm.fill()
    slurm.create(SAVES)
    slurm.wait_for("Queued")
    slurm.cluster.run("scancel", slurm.number())
    shown = slurm.wait_for_end()
    assert (shown["status"], shown["exit_code"]) == ("Canceled", 130)
    assert "canceled with scancel" in shown["reason"]
    slurm.cluster.run("scancel", other)
    slurm.begin(SAVES, "running")
    slurm.cluster.run("scancel", slurm.number("running"))
    shown = slurm.wait_for_end("running")
    assert (shown["status"], shown["reason"]) == ("Canceled", "canceled by scancel")
    saved = slurm.home / "jobs" / "running" / "outputs"
    assert {path.read_text() for path in saved.iterdir()} == {"1 signal"}


def test_a_command_that_asks_slurm_outlives_its_signal(slurm, monkeypatch, tmp_path):
    """Slurm signals all that runs of the job, and so a command that the supervisor has just started to ask why."""
    asked = tmp_path / "asked"
    struck = tmp_path / "bin" / "scontrol"
    struck.parent.mkdir()
    struck.write_text(
        f"#!/bin/sh\ncase $3 in job) kill -TERM $$; echo lives >>'{asked}';; esac\n"
        f'exec {shutil.which("scontrol")} "$@"\n'
    )
    struck.chmod(0o755)
    monkeypatch.setenv("PATH", f"{struck.parent}:{os.environ['PATH']}")
    slurm.begin(SAVES)
    slurm.cluster.run("scancel", slurm.number())
    assert slurm.wait_for_end()["reason"] == "canceled by scancel"
    saved = slurm.home / "jobs" / "job" / "outputs"
    assert [path.read_text() for path in saved.iterdir()] == ["1 signal"] * 4
    assert set(asked.read_text().split()) == {"lives"}


@contextlib.contextmanager
def stopping_after_a_failure(slurm):
    """Have a job stop its other ranks for as long as the block goes on; it may be started again."""
    slurm.begin(FAILS, drumline={"max_restarts": 1})
    outputs = slurm.home / "jobs" / "job" / "outputs"
    (outputs / "fail").touch()
    wait_until((outputs / "told").exists, what="the other ranks to be told to end")
    yield outputs
    (outputs / "end").touch()


def wait_for_event(slurm, wanted):
    wait_until(lambda: wanted in events(slurm.home / "jobs" / "job"), what=wanted)


def test_an_operator_cancels_it_while_it_stops_after_a_failure(slurm):
    with stopping_after_a_failure(slurm) as outputs:
        slurm.cluster.run("scancel", slurm.number())
        wait_for_event(slurm, "CancelRequested")
    shown = slurm.wait_for_end()
    assert (shown["status"], shown["reason"]) == ("Canceled", "canceled by scancel")
    assert not (outputs / "started-again").exists()


def test_an_operator_requeues_it_while_it_stops_after_a_failure(slurm):
    with stopping_after_a_failure(slurm):
        slurm.cluster.scontrol("requeue", slurm.number())
        wait_for_event(slurm, "Preempted")
    slurm.start_now()
    shown = slurm.wait_for_end()
    assert (shown["status"], [one["kind"] for one in shown["attempts"]]) == ("Completed", ["failure"])


def test_its_time_limit_comes_near_while_it_stops_after_a_failure(slurm):
    with stopping_after_a_failure(slurm):
        slurm.cluster.run("scancel", "--batch", "--signal=USR2", slurm.number())
        wait_for_event(slurm, "Preempted")
    slurm.start_now()
    shown = slurm.wait_for_end()
    assert (shown["status"], [one["kind"] for one in shown["attempts"]]) == ("Completed", ["failure"])


def test_an_operator_requeues_it(slurm):
    slurm.begin(SAVES, **SPOT)
    slurm.cluster.scontrol("requeue", slurm.number())
    slurm.start_now()
    shown = slurm.wait_for_end()
    assert (shown["status"], [one["kind"] for one in shown["attempts"]]) == ("Completed", ["preemption"])
    assert "Slurm, which starts it again (requeue)" in shown["attempts"][0]["reason"]
    assert slurm.logs() == ["goes on after 1 signal in attempt 1\n"] * 4


def test_a_job_with_a_higher_priority_takes_its_nodes(slurm):
    slurm.begin(SAVES, **SPOT, resources={"instance_count": 4})
    slurm.cluster.run("srun", "--nodes=4", "--exclusive", "true")
    slurm.start_now()
    shown = slurm.wait_for_end()
    assert shown["status"] == "Completed", shown["reason"]
    assert "Slurm, for a job with a higher priority" in shown["attempts"][0]["reason"]
    assert slurm.logs() == ["goes on after 1 signal in attempt 1\n"] * 8


def test_what_may_not_be_requeued_ends_with_the_reason(slurm):
    slurm.begin(SAVES, resources={"instance_count": 1, "properties": {"slurm": {"partition": "spot"}}})
    slurm.cluster.run("srun", "--nodes=4", "--exclusive", "true")
    shown = slurm.wait_for_end()
    assert shown["status"] == "Failed"
    assert "requeue is off" in shown["reason"]


def test_ranks_save_before_slurms_time_limit(slurm):
    slurm.begin(SAVES, **SPOT)
    # What Slurm itself does a while before the limit (``--signal`` of the script), up to a minute early.
    slurm.cluster.run("scancel", "--batch", "--signal=USR2", slurm.number())
    slurm.start_now()
    shown = slurm.wait_for_end()
    assert shown["status"] == "Completed", shown["reason"]
    assert "time limit is near" in shown["attempts"][0]["reason"]
    assert slurm.logs() == ["goes on after 1 signal in attempt 1\n"] * 4


def test_without_anything_new_it_is_not_started_again_at_the_time_limit(slurm):
    slurm.begin(WAITS, **SPOT)
    slurm.cluster.run("scancel", "--batch", "--signal=USR2", slurm.number())
    shown = slurm.wait_for_end()
    assert shown["status"] == "Failed"
    assert "its ranks left nothing new" in shown["reason"]


def test_a_killed_slurmd_takes_nothing_with_it(slurm):
    slurm.begin(GOES_ON)
    slurm.cluster.stop("e2", kill=True)
    (slurm.home / "jobs" / "job" / "outputs" / "go").touch()
    assert slurm.wait_for_end()["status"] == "Completed"
    slurm.cluster.start("e2")


def test_a_killed_agent_is_named_with_its_machine(slurm):
    slurm.begin(WAITS)
    slurm.cluster.exec("e2", "pkill", "-KILL", "-x", "drumline-node-1")
    shown = slurm.wait_for_end()
    assert (shown["status"], shown["failed_node"]) == ("Failed", 1)
    assert "the agent of node 1 (e2)" in shown["reason"]


def test_a_killed_supervisor_leaves_nothing(slurm):
    slurm.begin(WAITS)
    slurm.cluster.exec("e1", "pkill", "-KILL", "-x", "drumline-job")
    shown = slurm.wait_for_end()
    assert shown["status"] == "Failed"
    assert "its supervisor was killed by SIGKILL" in shown["reason"]


def test_a_node_that_loses_power_is_replaced(slurm):
    slurm.begin(LOST, **SPOT)
    slurm.cluster.cut("e2")
    try:
        slurm.start_now()
        shown = slurm.wait_for_end()
    finally:
        slurm.cluster.revive("e2")
    assert (shown["status"], len(shown["attempts"])) == ("Completed", 1), shown["reason"]
    assert "e2" in shown["attempts"][0]["reason"]
    assert "e2" not in [node["host"] for node in shown["nodes"]]


@pytest.mark.skipif(
    not os.environ.get("DRUMLINE_SLOW"), reason="45 s of waiting for Slurm; DRUMLINE_SLOW=1 runs it"
)
def test_the_node_of_the_supervisor_loses_power(slurm):
    slurm.begin(
        WAITS.replace(
            "signal.pause()", "__import__('os').environ['DRUMLINE_ATTEMPT'] == '1' or signal.pause()"
        ),
        **SPOT,
    )
    slurm.cluster.cut("e1")
    try:
        slurm.start_now()
        shown = slurm.wait_for_end()
    finally:
        slurm.cluster.revive("e1")
    assert (shown["status"], [one["kind"] for one in shown["attempts"]]) == ("Completed", ["preemption"])
    assert "before it could say more" in shown["attempts"][0]["reason"]


def test_a_drained_node_goes_on_with_what_it_has(slurm):
    slurm.begin(SAVES)
    slurm.cluster.scontrol("update", "NodeName=e[1-4]", "State=DRAIN", "Reason=repair")
    try:
        assert slurm.show()["status"] == "Running"
        slurm.create("print('trained')", "next", **one_rank(resources={"instance_count": 1}))
        wait_until(lambda: "drained" in slurm.show("next")["reason"], what="the next to wait for a node")
        nodes = jobs_of_compute()
        assert {node.reason for node in nodes} == {"repair"}
    finally:
        slurm.cluster.scontrol("update", "NodeName=e[1-4]", "State=RESUME")
    assert slurm.wait_for_end("next")["status"] == "Completed"
    assert slurm.show()["status"] == "Running"


def jobs_of_compute():
    from drumline.control.machine import computes

    return computes.nodes(COMPUTE)


@contextlib.contextmanager
def controller_away(slurm):
    # With kill=True it may have forgotten what it has not written down yet.
    slurm.cluster.stop("slurmctld")
    try:
        yield
    finally:
        slurm.cluster.start("slurmctld")


def test_the_controller_is_away(slurm, cli):
    slurm.begin(SAVES)
    with controller_away(slurm):
        wait_until(lambda: "Slurm does not answer" in slurm.show()["reason"], what="the reason")
        assert slurm.show()["status"] == "Running"
    wait_until(lambda: slurm.show()["reason"] == "", 20.0, "Slurm to answer")
    assert cli("job", "cancel", "-n", "job").rc == 0
    assert slurm.show()["status"] == "Canceled"


def test_a_job_that_is_submitted_while_the_controller_is_away(slurm, tmp_path):
    job = {"name": "job", "command": "echo trained", "compute": COMPUTE}
    (tmp_path / "job.yml").write_text(json.dumps(job))
    arguments = [sys.executable, "-m", "drumline", "job", "create", "-f", str(tmp_path / "job.yml")]
    error = tmp_path / "error"
    with controller_away(slurm), error.open("wb") as err:
        submitting = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=err)
        wait_until(lambda: b"waiting for Slurm" in error.read_bytes(), 20.0, "the command to wait")
    assert submitting.wait() == 0, error.read_text()
    assert slurm.wait_for_end()["status"] == "Completed"


def test_a_suspended_job_says_so_and_goes_on(slurm):
    slurm.begin(SAVES)
    slurm.cluster.scontrol("suspend", slurm.number())
    wait_until(lambda: "suspended" in slurm.show()["reason"], what="the reason")
    slurm.cluster.scontrol("resume", slurm.number())
    wait_until(lambda: slurm.show()["reason"] == "", what="it to go on")
    assert slurm.show()["status"] == "Running"


def test_gpus_are_those_that_slurm_has_bound(slurm):
    slurm.attach("--partition", "main", "--gpus-per-node", "2")
    slurm.create("import os\nprint(os.environ['CUDA_VISIBLE_DEVICES'])\n", resources={"instance_count": 1})
    assert slurm.wait_for_end()["status"] == "Completed"
    assert slurm.logs() == ["0,1\n", "0,1\n"]


def test_an_interface_that_leads_nowhere_is_not_chosen(slurm):
    """As docker0 is, of the same address on every node."""
    for node in ("e1", "e2"):
        done = slurm.cluster.exec(
            node, "sh", "-c", "ip link add aaa0 type bridge && ip addr add 172.31.0.1/24 dev aaa0"
        )
        assert done.returncode == 0, done.stderr
        assert slurm.cluster.exec(node, "ip", "link", "set", "aaa0", "up").returncode == 0
    try:
        slurm.create("import os\nprint(os.environ['GLOO_SOCKET_IFNAME'], os.environ['UCX_NET_DEVICES'])\n")
        shown = slurm.wait_for_end()
    finally:
        for node in ("e1", "e2"):
            slurm.cluster.exec(node, "ip", "link", "del", "aaa0")
    assert shown["status"] == "Completed", shown["reason"]
    assert slurm.logs() == ["eth0 eth0\n"] * 4
    assert [(node["host"], node["interface"]) for node in shown["nodes"]] == [("e1", "eth0"), ("e2", "eth0")]


def test_an_interface_of_the_compute_that_is_not_there(slurm):
    slurm.attach("--partition", "main", "--interface", "ib7")
    slurm.create(WAITS)
    shown = slurm.wait_for_end()
    assert shown["status"] == "Failed"
    assert "ib7" in shown["reason"]


def test_slurms_no_is_told_and_nothing_is_left(slurm, cli, tmp_path):
    (tmp_path / "job.yml").write_text(
        json.dumps(
            {
                "name": "job",
                "command": "echo never",
                "compute": COMPUTE,
                "resources": {"properties": {"slurm": {"partition": "nowhere"}}},
            }
        )
    )
    done = cli("job", "create", "-f", tmp_path / "job.yml")
    assert done.rc == 2
    assert "invalid partition" in done.err.lower()
    assert lookup.all_names() == []


def test_many_at_once(slurm, tmp_path):
    names = [f"one-{number}" for number in range(200 if os.environ.get("DRUMLINE_SLOW") else 60)]
    code = (
        "import sys\n"
        "from drumline import MLClient, command\n"
        "client = MLClient()\n"
        "for name in sys.argv[1:]:\n"
        f"    client.jobs.create_or_update(command(name=name, command='echo trained', compute='{COMPUTE}'))\n"
    )
    submitting = [
        subprocess.Popen([sys.executable, "-c", code, *names[start::2]], stdin=subprocess.DEVNULL)
        for start in range(2)
    ]
    assert [one.wait() for one in submitting] == [0, 0]

    def ended() -> bool:
        return not slurm.cluster.squeue()

    wait_until(ended, 60.0, "all to have run")
    shown = [recovery.recover(lookup.folder_of(name)) for name in names]
    assert {one.status for one in shown} == {"Completed"}
    logs = [slurm.home / "jobs" / name / "user_logs" / "std_log.txt" for name in names]
    assert {log.read_text() for log in logs} == {"trained\n"}


def test_a_run_folder_is_one_jobs_alone(slurm):
    """Somebody submits the script of a job once more: it ends at once."""
    slurm.begin(WAITS)
    folder = slurm.home / "jobs" / "job"
    again = slurm.cluster.run(
        "sbatch",
        "--parsable",
        f"--output={folder}/again.log",
        f"--wrap=exec '{sys.executable}' -P -m drumline.supervisor --batch '{folder}'",
    ).strip()
    wait_until(lambda: again not in slurm.cluster.squeue(), 20.0, "the second to have ended")
    assert "ExitCode=3:0" in slurm.cluster.scontrol("show", "job", again)
    assert slurm.show()["status"] == "Running"
    assert [event for event in events(folder) if event == "JobStarting"] == ["JobStarting"]


def events(folder):
    return [json.loads(line)["type"] for line in (folder / "events.jsonl").read_text().splitlines()]


def test_run_folders_may_be_elsewhere(slurm, tmp_path, cli):
    shared = tmp_path / "shared"
    shared.mkdir()
    slurm.attach("--partition", "main", "--folder", str(shared))
    slurm.create("print('trained')", **one_rank(resources={"instance_count": 1}))
    shown = slurm.wait_for_end()
    assert (shown["status"], shown["run_folder"]) == ("Completed", str(shared / "jobs" / "job"))
    assert os.path.islink(slurm.home / "jobs" / "job")
    assert cli("job", "list", "--query", "[].name", "-o", "tsv").out == "job\n"
    assert cli("job", "create", "-f", tmp_path / "job.yml").rc == 2


def test_doctor_checks_the_nodes_of_the_cluster(slurm, cli):
    done = cli("doctor", "--compute", COMPUTE, "--nodes", "2", "-o", "json")
    checks = json.loads(done.out)["checks"]
    assert done.rc == int(any(one["status"] == "error" for one in checks)), done.err
    assert {one["id"] for one in checks} >= {"python", "connections", "links", "clocks"}
    hosts = {one["node"] for one in checks if one["id"] == "host-name"}
    assert len(hosts) == 2
    assert hosts <= {"e1", "e2", "e3", "e4"}
    job = done.err.split()[1]
    assert slurm.show(job)["ranks"] == []
