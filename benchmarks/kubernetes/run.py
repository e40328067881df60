"""
What Drumline adds to Kubernetes, and what it saves: the same ranks by kubectl with torchrun in the pods, and by
`drumline job create`.

    python benchmarks/kubernetes/run.py [--rounds 5] [--markdown kubernetes.md] [--json kubernetes.json]

The Python that runs it needs Drumline with the extra kubernetes, and PyTorch. The cluster is made for this run alone by
scripts/kubernetes-cluster, and gone afterwards; where Kubernetes was not built the exit code is 3. See README.md.
"""

import argparse
import contextlib
import importlib.metadata
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from contenders import CONTENDERS, DRUMLINE, TORCHRUN, Cluster, Contender
from environment import ROOT, say
from machine import describe_machine, publish

SKIPPED = 3
JOB_END_S = 120.0
SPANS = [
    "the command ends",
    "a rank's first line",
    "from a failed rank to the first line of the next attempt",
]
# Of whoever runs this.
NOT_OURS = ("DRUMLINE_", "KUBE", "PYTHON", "AZUREML_", "MASTER_", "RANK", "WORLD_SIZE")


@contextlib.contextmanager
def make_cluster(folder: Path) -> Iterator[Cluster]:
    """Nothing of it is left afterwards. Raises SystemExit, with 3 where Kubernetes is not to be had."""
    script = [sys.executable, str(ROOT / "scripts" / "kubernetes-cluster")]
    try:
        made = subprocess.run(
            [*script, "up", "--dir", str(folder), "--nodes", "2"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        if made.returncode:
            say(f"no cluster: {made.stderr.strip()}")
            sys.exit(SKIPPED if made.returncode == SKIPPED else 1)
        yield Cluster(folder / "kubeconfig")
    finally:
        subprocess.run([*script, "down", "--dir", str(folder)], check=False)


def sample(cluster: Cluster, contender: Contender, scratch: Path) -> list[float]:
    """SPANS in seconds, the first two from the start of the command. Raises RuntimeError."""
    folder = Path(tempfile.mkdtemp(dir=scratch))
    kept = {name: value for name, value in os.environ.items() if not name.startswith(NOT_OURS)}
    began = time.time()
    contender.submit(cluster, folder, kept)
    submitted = time.time()
    deadline = time.monotonic() + JOB_END_S
    while (times := contender.times(cluster, folder)) is None:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{contender.name}: the job has not ended")
        time.sleep(0.2)
    contender.clear(cluster)
    # The next one is to find all nodes free.
    while cluster.names("pods") or cluster.names("jobs"):
        if time.monotonic() > deadline:
            raise RuntimeError(f"{contender.name}: its pods do not go")
        time.sleep(0.2)
    shutil.rmtree(folder)
    return [submitted - began, times.first_line - began, times.restarted - times.failed]


def spread(values: Sequence[float], unit: str) -> str:
    return f"{statistics.median(values):.2f} {unit} ({min(values):.2f}-{max(values):.2f})"


def render(results: dict[str, Any]) -> str:
    lines = [f"- {name}: {value}" for name, value in results["machine"].items()]
    lines += [
        f"- load average after each round: {min(results['loads']):.2f} to {max(results['loads']):.2f}",
        "- versions: " + ", ".join(f"{name} {version}" for name, version in results["versions"].items()),
        "",
        f"| what | {TORCHRUN.name} | {DRUMLINE.name} | ratio | pairs |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for index, span in enumerate(SPANS):
        peer, ours = ([one[index] for one in results["samples"][each.name]] for each in (TORCHRUN, DRUMLINE))
        ratios = [mine / its for mine, its in zip(ours, peer, strict=True)]
        cells = [span, spread(peer, "s"), spread(ours, "s"), spread(ratios, "x"), str(len(ratios))]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="pairs (5)")
    parser.add_argument("--json", type=Path, help="write every sample here")
    parser.add_argument("--markdown", type=Path, help="write the table here, beside standard output")
    return parser.parse_args()


def measure(cluster: Cluster, rounds: int, scratch: Path, results: dict[str, Any]) -> None:
    say("warming up: one unmeasured job each")
    for contender in CONTENDERS:
        sample(cluster, contender, scratch)
    for index in range(rounds):
        # Another one begins each time.
        for contender in CONTENDERS if index % 2 else CONTENDERS[::-1]:
            results["samples"][contender.name].append(sample(cluster, contender, scratch))
        results["loads"].append(os.getloadavg()[0])
        say(f"round {index + 1} of {rounds} done, load {os.getloadavg()[0]:.2f}")


def main() -> int:
    arguments = parse_arguments()
    results: dict[str, Any] = {
        "machine": describe_machine(),
        "versions": {name: importlib.metadata.version(name) for name in ("drumline", "torch", "lightkube")},
        "loads": [],
        "samples": {each.name: [] for each in CONTENDERS},
    }
    # Not below /tmp: a pod has one of its own.
    with (
        tempfile.TemporaryDirectory(prefix="dlk-", dir="/var/tmp") as scratch,
        make_cluster(Path(scratch, "cluster")) as cluster,
    ):
        results["versions"]["Kubernetes"] = json.loads(cluster.ask("GET", "/version"))["gitVersion"]
        try:
            measure(cluster, arguments.rounds, Path(scratch), results)
        except (RuntimeError, OSError) as error:
            sys.exit(str(error))
    publish(render(results), results, arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
