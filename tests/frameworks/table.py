"""
The examples that are run: a new one is a row here, and what it needs a file in ``environments``.

``scripts/test`` runs the rows of ``BASE``; ``scripts/test --frameworks all`` runs all, and writes what they reached
into docs/howto/frameworks.md.
"""

import csv
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
BASE = "base"
"""The environment that the tests themselves run in."""

ACCURACY = r"test accuracy (0\.\d+) \(4 ranks\)"


class Followed(NamedTuple):
    """``total``: who says how many steps there are, empty for nobody. ``steps`` 0: nothing is known."""

    steps: int
    total: str = ""
    ddp: bool = True


@dataclass(frozen=True)
class Example:
    name: str
    """Its folder below ``examples``."""

    figure: str
    """What the last line of the training looks like; its first group is a number."""

    least: float
    """What that number must be at least."""

    versions: tuple[str, ...]
    """Distributions whose versions stand in the document; without one of them the example is skipped."""

    environment: str = BASE
    program: str = ""
    """What must be on the PATH of the environment; without it the example is skipped."""

    job_file: str = "job.yml"
    long: tuple[str, ...] = ("inputs.epochs=100000",)
    """``--set`` arguments that make it train until it is ended."""

    training: str = "epoch"
    """What some log holds as soon as it trains."""

    victim: int = 1
    """The rank to kill, as ``drumline job show`` numbers them."""

    reason: str = r"rank 1 on node 0 failed( first,)? [\d.]+ s in: killed by signal 9 \(SIGKILL"
    """What the job's reason then holds; another node or another word for a rank is said here."""

    check: Callable[[Path], None] | None = None
    """Looks at the outputs of a job that has completed."""

    ahead: tuple[str, ...] = ()
    """
    What a warm interpreter imports for it, among others; none: it may decline, and imports nothing that must not be
    imported ahead.
    """

    is_warm: bool = True
    """Its job file is run with ranks that are forked; else with none that is."""

    followed: Followed | None = None
    """What is then known of its steps; None: that is not looked at."""

    short: tuple[str, ...] = ()
    """``--set`` arguments of a job that has one rank and is over soon, for a run whose ranks are started afresh."""

    @property
    def id(self) -> str:
        named = self.name if self.job_file == "job.yml" else f"{self.name} ({self.job_file})"
        # The same job with another MPI.
        return f"{named}, {self.environment}" if self.environment in ("openmpi", "mpich") else named

    @property
    def has_submit_file(self) -> bool:
        """submit.py is the job of job.yml."""
        return self.job_file == "job.yml"


def _check_digits_ddp(outputs: Path) -> None:
    import torch

    curve = list(csv.DictReader((outputs / "curve.csv").read_text().splitlines()))
    assert float(curve[-1]["test_accuracy"]) > 0.95
    model = torch.load(outputs / "model.pt", weights_only=True)
    assert all(torch.isfinite(tensor).all() for tensor in model.values())


def _check_digits_fsdp(outputs: Path) -> None:
    assert len(list((outputs / "checkpoint").glob("*.distcp"))) == 4, "a file of each rank"


def _check_transformers(outputs: Path) -> None:
    from transformers import ViTForImageClassification

    assert ViTForImageClassification.from_pretrained(outputs / "model").config.num_labels == 10


DEEPSPEED = r"test accuracy (0\.\d+) \(4 ranks, ZeRO stage 2\)"

TABLE = (
    Example(
        "digits-ddp",
        ACCURACY,
        0.95,
        ("torch",),
        check=_check_digits_ddp,
        ahead=("torch",),
        followed=Followed(88, "input epochs"),
    ),
    Example(
        "checkpointing",
        ACCURACY,
        0.95,
        ("torch",),
        long=("inputs.epochs=100000", "drumline.max_restarts=0"),
        ahead=("torch",),
    ),
    Example(
        "digits-fsdp",
        ACCURACY,
        0.94,
        ("torch",),
        check=_check_digits_fsdp,
        ahead=("torch",),
        followed=Followed(120, ddp=False),
    ),
    Example(
        "lightning",
        r"test accuracy (0\.\d+) \(4 ranks, TorchElasticEnvironment\)",
        0.94,
        ("lightning", "torch"),
        ahead=("torch",),
        followed=Followed(88, "Lightning"),
    ),
    Example(
        "lightning",
        r"test accuracy (0\.\d+) \(4 ranks, LightningEnvironment\)",
        0.94,
        ("lightning", "torch"),
        job_file="job-per-node.yml",
        ahead=("torch",),
        followed=Followed(88, "Lightning"),
        is_warm=False,
        reason=r"rank 1 on node 1 failed( first,)? [\d.]+ s in: killed by signal 9 \(SIGKILL",
    ),
    Example(
        "transformers-trainer",
        ACCURACY,
        0.9,
        ("transformers", "accelerate", "torch"),
        check=_check_transformers,
        ahead=("torch",),
        followed=Followed(330, "Transformers"),
        short=(
            "inputs.epochs=1",
            "distribution.process_count_per_instance=1",
            "resources.instance_count=1",
        ),
    ),
    Example("mpi4py", ACCURACY, 0.95, ("mpi4py",), program="mpirun", followed=Followed(0)),
    Example("mpi4py", ACCURACY, 0.95, ("mpi4py", "openmpi"), environment="openmpi"),
    Example("mpi4py", ACCURACY, 0.95, ("mpi4py", "mpich"), environment="mpich"),
    Example(
        "horovod",
        r"test accuracy (0\.\d+) \(4 ranks on 2 nodes\)",
        0.94,
        ("horovod", "torch"),
        environment="horovod",
        program="mpirun",
    ),
    Example(
        "deepspeed-zero",
        DEEPSPEED,
        0.94,
        ("deepspeed", "torch"),
        environment="deepspeed",
        ahead=("deepspeed", "torch"),
        followed=Followed(88, "input epochs", ddp=False),
    ),
    Example(
        "deepspeed-zero",
        DEEPSPEED,
        0.94,
        ("deepspeed", "torch"),
        environment="deepspeed",
        program="mpirun",
        job_file="job-mpi.yml",
    ),
    Example(
        "deepspeed-zero",
        DEEPSPEED,
        0.94,
        ("deepspeed", "torch"),
        environment="deepspeed",
        job_file="job-launcher.yml",
        victim=0,
        reason=r"rank 0 on node 0 failed( first,)? [\d.]+ s in: killed by signal 9 \(SIGKILL",
    ),
    Example("jax", ACCURACY, 0.93, ("jax",), environment="jax"),
    Example(
        "tensorflow-mwms",
        r"test accuracy (0\.\d+) \(2 workers\)",
        0.95,
        ("tensorflow-cpu",),
        environment="tensorflow",
        reason=r"rank 1 on node 1 failed( first,)? [\d.]+ s in: killed by signal 9 \(SIGKILL",
    ),
    Example(
        "tensorflow-ps",
        r"test accuracy (0\.\d+) \(2 workers\)",
        0.94,
        ("tensorflow-cpu",),
        environment="tensorflow",
        reason=r"rank 1 on node 1 failed( first,)? [\d.]+ s in: killed by signal 9 \(SIGKILL",
    ),
    Example(
        "ray",
        r"test accuracy (0\.\d+) \(4 workers\)",
        0.95,
        ("ray",),
        environment="ray",
        victim=2,
        reason=r"rank ray1 on node 1 failed( first,)? [\d.]+ s in: killed by signal 9 \(SIGKILL",
    ),
)


def environments() -> list[str]:
    """All but BASE."""
    return sorted(path.stem for path in (Path(__file__).parent / "environments").glob("*.txt"))


def chosen_environments() -> list[str]:
    """Those that ``scripts/test --frameworks`` has made, BASE not among them."""
    return os.environ.get("DRUMLINE_FRAMEWORKS", "").replace(",", " ").split()


def python_of(environment: str) -> str:
    """The interpreter of an environment, wherever ``scripts/test`` keeps it."""
    if environment == BASE:
        return sys.executable
    folder = os.environ.get("DRUMLINE_FRAMEWORK_VENVS") or ROOT / ".venv-frameworks"
    return str(Path(folder, environment, "bin", "python"))
