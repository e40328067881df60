"""
What every test gets: a home of its own, a clean environment, and a check that it leaves no
process behind.

The check looks for the test's DRUMLINE_HOME in the environment of every process on the machine,
so it sees
supervisors, agents and ranks in whatever session, and those of other tests are not taken for ours.
"""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

import hypothesis
import pytest
import services
from kubernetes_cluster import KubernetesCluster
from slurm_cluster import SlurmCluster, Unavailable
from waiting import PATIENCE, wait_until, yields_to_others

T = TypeVar("T")

# A busy machine is slow: that says nothing about the code.
hypothesis.settings.register_profile(
    "busy", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("busy")

_LAUNCHER_NAMES = {
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "NODE_RANK",
    "GROUP_RANK",
    "TF_CONFIG",
}
_LAUNCHER_PREFIXES = (
    "MASTER_",
    "OMPI_",
    "PMI",
    "SLURM_",
    "AZUREML_",
    "AZURE_ML_",
    "AZ_BATCH",
    "TORCHELASTIC_",
    "DRUMLINE_",
    "MLFLOW_",
)
_LEFTOVER_GRACE_S = 5.0


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-counts", action="store_true", help="write what a launch costs to launch_counts.json"
    )


@pytest.fixture(autouse=True)
def drumline_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """
    The test's own DRUMLINE_HOME, not yet created; no launcher's variables are in the environment.
    """
    for name in list(os.environ):
        if name in _LAUNCHER_NAMES or name.startswith(_LAUNCHER_PREFIXES):
            monkeypatch.delenv(name)
    # A user's shell has no such setting, which would hide what waits in a buffer.
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    home = tmp_path / "drumline home"
    monkeypatch.setenv("DRUMLINE_HOME", str(home))
    # A job with an image runs without it here, whatever this machine has; tests of containers choose for themselves.
    monkeypatch.setenv("DRUMLINE_CONTAINER", "none")
    # All tests can be run with ranks that are forked, or none that is.
    if os.environ.get("TEST_WARM"):
        monkeypatch.setenv("DRUMLINE_WARM", os.environ["TEST_WARM"])
    return home


@pytest.fixture(autouse=True)
def no_leftovers(drumline_home: Path) -> Iterator[None]:
    """
    Fail a test after which a process of its jobs is alive for more than 5 s, and end that
    process.
    """
    # Not of this test, and reading of them all would take longer than most tests.
    before = frozenset(os.listdir("/proc"))
    yield
    marker = b"DRUMLINE_HOME=" + os.fsencode(drumline_home) + b"\0"
    left: dict[int, str] = {}

    def is_clean() -> bool:
        left.clear()
        left.update(processes_with(marker, before | own_trackers()))
        return not left

    with contextlib.suppress(TimeoutError):
        wait_until(is_clean, _LEFTOVER_GRACE_S / PATIENCE)
    with contextlib.suppress(TimeoutError):
        wait_until(lambda: is_clean() or not all(map(yields_to_others, left)), 30.0)
    for pid in left:
        kill(pid)
    if left:
        listing = "\n".join(f"  {pid}: {command}" for pid, command in left.items())
        pytest.fail(f"alive {_LEFTOVER_GRACE_S:g} s after the test:\n{listing}", pytrace=False)


@pytest.fixture(autouse=True)
def no_warm_interpreters(no_leftovers: None, drumline_home: Path) -> Iterator[None]:
    """End what the jobs of a test left warm, before somebody looks for leftovers."""
    yield
    if (drumline_home / "warm").is_dir():
        from drumline.control.machine import warm

        warm.stop(base=str(drumline_home))


def own_trackers() -> frozenset[str]:
    """
    The pid of this process's own helper of multiprocessing, if there is one: a lock starts it, from Python 3.14 on a
    lock of tqdm's or tensorboardX's too, and a lock of a later test needs it.
    """
    module = sys.modules.get("multiprocessing.resource_tracker")
    return frozenset({str(module._resource_tracker._pid)} if module else ())


def processes_with(marker: bytes, others: Collection[str] = ()) -> dict[int, str]:
    """
    The command lines, by pid, of the living processes that have the marker in their environment; those of
    ``others`` are not looked at.
    """
    found: dict[int, str] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit() or name in others:
            continue
        folder = Path("/proc", name)
        try:
            if marker in (folder / "environ").read_bytes() + b"\0":
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                found[int(folder.name)] = command.strip()
        except OSError:  # ended meanwhile, a zombie, or another user's
            continue
    return found


def kill(pid: int) -> None:
    """End the process at once; one that is already gone is no error."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@dataclass(frozen=True)
class CommandResult:
    """What a finished command said."""

    rc: int
    out: str
    err: str


class Cli(Protocol):
    """Runs `drumline` with the given arguments."""

    def __call__(
        self,
        *arguments: str | Path,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float = 240.0,
    ) -> CommandResult:
        """
        Wait for its end; `env` is added to the test's environment. Raises
        subprocess.TimeoutExpired.
        """


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """The real command in a process of its own, without stdin, in the test's temporary folder."""

    def run(
        *arguments: str | Path,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float = 240.0,
        before: Callable[[], object] | None = None,
    ) -> CommandResult:
        # Files, not pipes: a process that outlives the command would hold a pipe open, and us
        # with it.
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            done = subprocess.run(
                [sys.executable, "-m", "drumline", *map(str, arguments)],
                cwd=cwd or tmp_path,
                env={**os.environ, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                timeout=timeout_s,
                preexec_fn=before,
                check=False,
            )
            out.seek(0)
            err.seek(0)
            return CommandResult(
                done.returncode,
                out.read().decode(errors="replace"),
                err.read().decode(errors="replace"),
            )

    return run


@pytest.fixture(scope="session")
def slurm_cluster() -> Iterator[SlurmCluster]:
    """Four nodes e1 to e4, shared by all tests: leave them idle, and no job behind."""
    spot = "PartitionName=spot Nodes=ALL PriorityTier=1 PreemptMode=REQUEUE GraceTime=2"
    try:
        cluster = SlurmCluster("--set", "KillWait=5", "--set", "SlurmdTimeout=5", "--partition", spot)
    except Unavailable as reason:
        if os.environ.get("CI"):  # where a test must not go missing
            pytest.fail(str(reason), pytrace=False)
        pytest.skip(str(reason))
    yield cluster
    cluster.down()


_FIXTURES_OF_ROOT = {"slurm_cluster", "kubernetes_cluster", "small_disk", "freezer"}


def pytest_itemcollected(item: pytest.Item) -> None:
    if not _FIXTURES_OF_ROOT.isdisjoint(getattr(item, "fixturenames", ())):
        item.add_marker("root")
    if "kubernetes_cluster" in getattr(item, "fixturenames", ()) and not item.get_closest_marker(
        "kubernetes"
    ):
        raise pytest.UsageError(f"{item.nodeid} needs the mark kubernetes, by which scripts/test finds it")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("root") and os.geteuid() != 0:
        pytest.skip("needs root; root runs these with -m root, or all with scripts/test --all --user NAME")


@pytest.fixture(scope="session")
def kubernetes_cluster() -> Iterator[KubernetesCluster]:
    """Three nodes e1 to e3, shared by all tests, where Kubernetes was built: leave nothing of a job behind."""
    pytest.importorskip("lightkube", reason="the extra kubernetes, which scripts/test installs")
    try:
        cluster = KubernetesCluster()
    except Unavailable as reason:
        if os.environ.get("CI"):  # where a test must not go missing
            pytest.fail(str(reason), pytrace=False)
        pytest.skip(str(reason))
    yield cluster
    cluster.down()


@pytest.fixture(scope="session")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[services.Azurite]:
    """Azure's blobs, shared by all tests: use containers with names of your own."""
    with _had(services.azurite(tmp_path_factory.mktemp("azurite"))) as service:
        yield service


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[services.S3Server]:
    """S3, shared by all tests: use buckets with names of your own."""
    with _had(services.s3_server(tmp_path_factory.mktemp("s3"))) as service:
        yield service


@contextlib.contextmanager
def _had(service: contextlib.AbstractContextManager[T]) -> Iterator[T]:
    """Skips without it, but not in CI, where a test must not go missing."""
    with contextlib.ExitStack() as stack:
        try:
            made = stack.enter_context(service)
        except services.Unavailable as reason:
            if os.environ.get("CI"):
                pytest.fail(str(reason), pytrace=False)
            pytest.skip(str(reason))
        yield made
