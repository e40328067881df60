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

from drumline.control.facts import description
from drumline.engines.kubernetes import manifests, pods

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(280)]

WAITS = """
    import signal
    print("ready", flush=True)
    signal.pause()
"""
COUNTED = "drumline-counted"
"""The annotation of pods that stay when they are deleted, and count (scripts/kubernetes-node)."""

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
            (supervisor,) = api.list("Pod", {manifests.ROLE_LABEL: manifests.SUPERVISOR})
        taken = supervisor["spec"]["nodeName"]
        return next((one["node"], one["host"]) for one in self.show()["nodes"] if one["host"] != taken)


def end_courier(home):
    """Kill the process that carries for the jobs of a home; it starts again when somebody looks."""
    found = processes_with(os.fsencode(f"\0DRUMLINE_HOME={home}\0")).items()
    couriers = [pid for pid, command in found if "engines.kubernetes.courier" in command]
    for pid in couriers:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in couriers), 30.0, "its end")


@pytest.fixture
def jobs(kubernetes_cluster, cli, drumline_home, tmp_path):
    made = Jobs(kubernetes_cluster, cli, drumline_home, tmp_path)
    made.attach()
    yield made
    kubernetes_cluster.wait_until_empty(30.0)


@pytest.mark.parametrize("counted", [False, True], ids=["as before 1.23", "as from 1.27 on"])
def test_a_drained_node_is_a_preemption_and_another_takes_its_number(jobs, drumline_home, counted):
    if counted:
        jobs.attach("--set", f"annotations.{COUNTED}=yes")
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
    # Servers of today also say why they ended the pod.
    (warning,) = [one for one in shown["warnings"] if one["kind"] == "outputs"]
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


def test_the_job_of_the_nodes_is_deleted_and_another_is_made(jobs):
    jobs.begin(WAITS_ONCE, queue_settings={"job_tier": "spot"})
    with jobs.cluster.api() as api:
        (nodes,) = (job for job in api.list("Job") if job["metadata"]["name"].endswith("-nodes"))
        api.delete_job(nodes["metadata"]["name"])
    words = "Drumline asks for one after 30 s"
    wait_until(lambda: words in (jobs.show()["reason"] or ""), 60.0, "the wait to be told")
    shown = jobs.wait_for_end(timeout_s=90.0)
    assert (shown["status"], shown["attempt"]) == ("Completed", 1), shown["reason"]


def test_a_failed_job_does_not_run_again_when_its_pods_and_jobs_are_deleted(jobs, drumline_home):
    ran = jobs.cluster.folder / "ran"
    jobs.begin(
        f"""
        import os, pathlib, time
        with open({str(ran)!r}, "a") as file:
            file.write("x")
        print("ready", flush=True)
        while not pathlib.Path({str(jobs.cluster.folder / "fail")!r}).exists():
            time.sleep(0.1)
        raise ValueError("loss is nan")
        """
    )
    end_courier(drumline_home)
    (jobs.cluster.folder / "fail").touch()
    with jobs.cluster.api() as api:
        wait_until(lambda: all(map(pods.has_ended, api.list("Pod"))), 60.0, "all pods to end")
        for pod in api.list("Pod"):
            jobs.cluster.ask("DELETE", f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}")
    shown = jobs.wait_for_end()
    assert shown["status"] == "Failed"
    jobs.cluster.wait_until_empty(30.0)
    assert ran.read_text() == "xx"


def test_an_image_without_the_python_is_told_with_what_to_do(jobs):
    jobs.attach("--python", "python9")
    assert jobs.create(WAITS).rc == 0
    shown = jobs.wait_for_end()
    assert shown["status"] == "Failed"
    begins = "the pod of its supervisor did not start: Error with exit code 127; its log ends with: env: "
    assert shown["reason"].startswith(begins)
    assert "none may have no python9: drumline compute update k8s --set python=..." in shown["reason"]


def test_a_local_input_reaches_the_pods_whatever_its_mode(jobs, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.txt").write_text("1")
    (tmp_path / "b.txt").write_text("2")
    (tmp_path / "data" / "b.txt").symlink_to(tmp_path / "b.txt")
    code = """
        import os, pathlib
        place = pathlib.Path(os.environ["AZURE_ML_INPUT_data"])
        print(place.is_relative_to("/drumline"), sorted(path.read_text() for path in place.iterdir()))
    """
    inputs = {"data": {"type": "uri_folder", "path": "data"}}
    assert jobs.create(code, inputs=inputs).rc == 0
    assert jobs.wait_for_end()["status"] == "Completed"
    assert jobs.logs() == ["True ['1', '2']\n"] * 2


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
