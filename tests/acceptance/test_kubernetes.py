"""Jobs on a real Kubernetes to which something happens: the sentences of elsewhere, and nothing is left behind."""

import os
import re
import shutil
import signal
import sys
import textwrap
from typing import Any

import pytest
from cli_jobs import logs_of, write_job
from conftest import processes_with
from waiting import wait_until

from drumline.control.observing import description
from drumline.engines.kubernetes import objects

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(280)]

WAITS = """
    import signal
    print("ready", flush=True)
    signal.pause()
"""
WAITS_ONCE = """
    import os, signal, sys
    if os.environ["DRUMLINE_ATTEMPT"] != "0":
        os.symlink("/etc/passwd", "outputs/away")
        sys.exit()
    print("ready", flush=True)
    signal.pause()
"""


FAILS_IN_MPI = """
    from mpi4py import MPI
    from mpi4py.run import set_abort_status
    world = MPI.COMM_WORLD
    world.Barrier()
    if world.rank == 2:
        set_abort_status(1)  # As python -m mpi4py does.
        raise ValueError("loss is nan")
    world.Barrier()
"""


class Jobs:
    """Jobs of two nodes with a rank each, unless told otherwise."""

    def __init__(self, cluster: Any, cli: Any, home: Any, folder: Any) -> None:
        self.cluster, self._cli, self._home, self._folder = cluster, cli, home, folder

    def attach(self, *options: str, name: str = "k8s") -> None:
        words = ["--type", "kubernetes", "--name", name, "--kubeconfig", str(self.cluster.kubeconfig)]
        done = self._cli(
            "compute",
            "attach",
            *words,
            "--image",
            "none",
            "--python",
            os.path.realpath(sys.executable),
            *options,
        )
        assert done.rc == 0, done.err

    def create(self, code: str, name: str = "job", **fields: Any) -> Any:
        source = self._folder / "src"
        source.mkdir(exist_ok=True)
        (source / f"{name}.py").write_text(textwrap.dedent(code))
        wanted = {
            "name": name,
            "code": "src",
            "compute": "azureml:k8s",
            "resources": {"instance_count": 2},
            "distribution": {"type": "pytorch", "process_count_per_instance": 1},
            **fields,
        }
        return self._cli("job", "create", "-f", write_job(self._folder, f"python {name}.py", **wanted))

    def begin(self, code: str, name: str = "job", **fields: Any) -> None:
        done = self.create(code, name, **fields)
        assert done.rc == 0, done.err
        path = self._home / "jobs" / name
        wait_until(
            lambda: [log for log in logs_of(path) if "ready" in log][1:], 30.0, "the ranks to be ready"
        )
        self.wait_for("Running", name=name)

    def logs(self) -> list[str]:
        return logs_of(self._home / "jobs" / "job")

    def show(self, name: str = "job") -> dict[str, Any]:
        return description.show_job(name)

    def wait_for(self, *wanted: str, name: str = "job", timeout_s: float = 30.0) -> dict[str, Any]:
        what = f"{name} to be {' or '.join(wanted)}"
        wait_until(lambda: self.show(name)["status"] in wanted, timeout_s, what)
        return self.show(name)

    def wait_for_end(self, name: str = "job", timeout_s: float = 30.0) -> dict[str, Any]:
        return self.wait_for("Completed", "Failed", "Canceled", name=name, timeout_s=timeout_s)

    def cancel(self, name: str = "job") -> dict[str, Any]:
        done = self._cli("job", "cancel", "-n", name)
        assert done.rc == 0, done.err
        return self.wait_for_end(name)

    def update(self, *words: str) -> None:
        done = self._cli("job", "update", "-n", "job", *words)
        assert done.rc == 0, done.err

    def find_node(self) -> tuple[int, str]:
        """A node of the job, and its name in the cluster: it does not have the supervisor's pod."""
        with self.cluster.api() as api:
            (supervisor,) = api.list("Pod", {objects.ROLE_LABEL: objects.SUPERVISOR})
        taken = supervisor["spec"]["nodeName"]
        return next((one["node"], one["host"]) for one in self.show()["nodes"] if one["host"] != taken)


@pytest.fixture
def jobs(kubernetes_cluster, cli, drumline_home, tmp_path):
    made = Jobs(kubernetes_cluster, cli, drumline_home, tmp_path)
    made.attach()
    yield made
    kubernetes_cluster.wait_until_empty(30.0)


def test_a_drained_node_is_a_preemption_and_another_takes_its_number(jobs, drumline_home):
    jobs.begin(WAITS_ONCE, queue_settings={"job_tier": "spot"})
    number, host = jobs.find_node()
    jobs.update("--set", "display_name=mine")
    jobs.cluster.drain(host)
    try:
        shown = jobs.wait_for_end()
    finally:
        jobs.cluster.revive(host)
    assert (shown["status"], shown["attempt"]) == ("Completed", 1), shown["reason"]
    assert [attempt["kind"] for attempt in shown["attempts"]] == ["node preemption"]
    why = f"node {number} ({host}) was preempted by Kubernetes, which ends its pod"
    assert shown["attempts"][0]["reason"] == why
    # Of pods is not wanted what they never have.
    checked = {one["id"] for one in shown["preflight"]["findings"]}
    assert not checked & {"look-ups", "shared-paths"}, checked
    # What people change, the log of the pod that is no more, and outputs that cannot come.
    assert shown["display_name"] == "mine"
    aside = drumline_home / "jobs" / "job" / "user_logs" / "attempt-0"
    assert [log.read_text() for log in aside.iterdir()] == ["ready\n"] * 2
    (warning,) = shown["warnings"]
    assert warning["text"].count("outputs/away (a link out of its output)") == 2, warning["text"]


@pytest.mark.skipif(
    not os.environ.get("DRUMLINE_SLOW"), reason="100 s of waiting for a silent node; DRUMLINE_SLOW=1 runs it"
)
def test_the_power_of_a_node_goes_and_another_takes_its_number(jobs):
    jobs.begin(WAITS_ONCE, queue_settings={"job_tier": "spot"})
    number, host = jobs.find_node()
    jobs.cluster.cut(host)
    try:
        shown = jobs.wait_for_end(timeout_s=150.0)
    finally:
        jobs.cluster.revive(host)
    assert (shown["status"], shown["attempt"]) == ("Completed", 1), shown["reason"]
    assert f"node {number} ({host})" in shown["attempts"][0]["reason"]


def test_the_pod_of_the_supervisor_is_killed(jobs):
    jobs.begin(WAITS)
    for pid, command in processes_with(b"\0DRUMLINE_HOME=/drumline/home\0").items():
        if re.search(r"\.pod supervisor job$", command):
            os.kill(pid, signal.SIGKILL)
    shown = jobs.wait_for_end()
    assert (shown["status"], shown["exit_code"]) == ("Failed", 1), shown["reason"]
    assert shown["reason"].startswith("the pod of its supervisor was lost: Error with exit code ")


def test_a_job_whose_pods_do_not_all_come_is_canceled(jobs):
    jobs.attach("--cores-per-node", "3")
    assert jobs.create(WAITS, resources={"instance_count": 4}).rc == 0
    wait_until(lambda: "Insufficient cpu" in (jobs.show()["reason"] or ""), 30.0, "the cluster's reason")
    shown = jobs.cancel()
    assert (shown["status"], shown["exit_code"]) == ("Canceled", 130)


def test_the_namespace_is_deleted(jobs):
    jobs.cluster.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "team"}})
    jobs.attach("--namespace", "team")
    jobs.begin(WAITS)
    jobs.cluster.ask("DELETE", "/api/v1/namespaces/team")
    shown = jobs.wait_for_end()
    assert shown["status"] == "Failed"
    # What its supervisor has said before its pod went comes first.
    reasons = ("its objects are gone from Kubernetes", "", "preempted by Kubernetes")
    assert shown["reason"].partition(",")[0] in reasons


def test_the_api_server_is_away_when_the_job_ends(jobs, tmp_path):
    go = jobs.cluster.folder / "go"
    # More than a Secret has room for.
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "weights.bin").write_bytes(os.urandom(2 << 20))
    jobs.begin(
        f"""
        import os, pathlib, time
        print(os.path.getsize("weights.bin"))
        print("ready", flush=True)
        while not pathlib.Path({str(go)!r}).exists():
            time.sleep(0.1)
        print("trained")
        """
    )
    jobs.cluster.cut("apiserver")
    try:
        wait_until(lambda: "does not answer" in (jobs.show()["reason"] or ""), 30.0, "the silence to be told")
        assert jobs.show()["status"] == "Running"
        go.touch()
    finally:
        jobs.cluster.revive("apiserver")
    assert jobs.wait_for_end()["status"] == "Completed"
    assert jobs.logs() == [f"{2 << 20}\nready\ntrained\n"] * 2


@pytest.mark.skipif(
    shutil.which("mpirun") is None, reason="there is no mpirun; scripts/test installs openmpi-bin"
)
def test_a_rank_of_mpirun_that_fails_is_named_with_its_exception(jobs):
    pytest.importorskip("mpi4py", reason="MPI's tests need mpi4py, which scripts/test installs")
    two_each = {"type": "mpi", "process_count_per_instance": 2}
    assert jobs.create(FAILS_IN_MPI, distribution=two_each).rc == 0
    shown = jobs.wait_for_end()
    assert (shown["status"], shown["failed_rank"], shown["failed_node"]) == ("Failed", 2, 1), shown["reason"]
    assert ": ValueError: loss is nan (job.py:8, in <module>)" in shown["reason"]
