"""
Predictions of four nodes from one and two, against four nodes that were run, on isolated nodes with slow lines.

See README.md beside it. It needs PyTorch, and the right to make namespaces.
"""

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from machine import describe_machine, publish
from processes import enter_scratch

from drumline.cli.main import main as drumline
from drumline.control.measure import scale_report as reports
from drumline.control.measure import scale_run
from drumline.spec.load import load_job

HERE = Path(__file__).resolve().parent
SIZES = (1, 2, 4)
AIM = 0.05


def write_files(folder: Path, rate: int, width: int) -> Path:
    """A compute whose lines have that rate, and the job. Raises RuntimeError for a compute that cannot be."""
    name = f"lab{rate}"
    compute = {"name": name, "type": "local", "nodes": max(SIZES), "isolation": "namespace"}
    (folder / "lab.yml").write_text(json.dumps({**compute, "link": {"rate": f"{rate}mbit"}}))
    if drumline(["compute", "create", "-f", str(folder / "lab.yml"), "-o", "none"]):
        raise RuntimeError(f"no compute with lines of {rate} Mbit/s")
    job = {
        "command": "python train.py",
        "code": str(HERE),
        "compute": f"azureml:{name}",
        "environment_variables": {"WIDTH": str(width), "OMP_NUM_THREADS": "1"},
        "distribution": {"type": "pytorch", "process_count_per_instance": 1},
    }
    path = folder / f"job-{rate}-{width}.yml"
    path.write_text(json.dumps(job))
    return path


def measure(folder: Path, rate: int, width: int, steps: int) -> dict[str, Any]:
    """The step of four nodes in seconds, as predicted from one and two, and as measured."""
    path = write_files(folder, rate, width)
    job = load_job(str(path))
    request = scale_run.ScaleRequest(SIZES, None, steps)
    plans = scale_run.plan_sizes(job, request)
    emulation = scale_run.find_emulation(job, plans, say)
    runs = list(scale_run.run_sizes(job, request, plans, say))
    predicted = reports.build_report("", runs[:-1], to=max(SIZES), emulation=emulation)
    measured = reports.build_report("", runs, to=max(SIZES), emulation=emulation)
    found = {"rate": rate, "bytes": 4 * 4 * width * width, "refused": [*predicted.refused, *measured.refused]}
    if not predicted.predicted or measured.measured[-1].facts is None:
        return found
    one, facts = predicted.predicted[-1], measured.measured[-1].facts
    found |= {
        "steps_s": [row.facts.step_s for row in measured.measured if row.facts],
        "predicted_s": one.step_s,
        "band_s": [one.low_s, one.high_s],
        "error": one.step_s / facts.step_s - 1,
        "busy": max((run.cpu_share or 0.0) for run in runs),
    }
    say(f"{rate} Mbit/s, {found['bytes']} bytes: error {100 * found['error']:.1f} %")
    return found


def say(text: str) -> None:
    print(f"scale: {text}", file=sys.stderr, flush=True)


def render(results: dict[str, Any]) -> str:
    lines = [f"- {name}: {value}" for name, value in results["machine"].items()]
    errors = [abs(one["error"]) for one in results["cases"] if "error" in one and not one["refused"]]
    near = sum(error <= AIM for error in errors)
    if errors:
        lines.append(
            f"- {near} of {len(errors)} predictions within 5 %, the median {100 * statistics.median(errors):.1f} % off"
        )
    lines += [
        "",
        "| Mbit/s | MiB | 1 node, ms | 2 nodes | 4 nodes | predicted | band | error | processors busy |",
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    lines += [_render_case(one) for one in results["cases"]]
    return "\n".join(lines) + "\n"


def _render_case(one: dict[str, Any]) -> str:
    head = f"| {one['rate']} | {one['bytes'] / 2**20:.1f} "
    if "error" not in one:
        return f"{head}| - | - | - | - | - | refused | - |"
    times = "".join(f"| {1e3 * seconds:.1f} " for seconds in (*one["steps_s"], one["predicted_s"]))
    low, high = (1e3 * seconds for seconds in one["band_s"])
    error = f"{100 * one['error']:+.1f} %" + (", refused" if one["refused"] else "")
    return f"{head}{times}| {low:.0f}-{high:.0f} | {error} | {100 * one['busy']:.0f} % |"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument(
        "--rates", type=int, nargs="+", default=[20, 50, 100, 150, 200], help="Mbit/s of a line"
    )
    parser.add_argument(
        "--widths", type=int, nargs="+", default=[256, 360, 512], help="of each of four layers"
    )
    parser.add_argument("--steps", type=int, default=30, help="measured at each size (30)")
    parser.add_argument("--json", type=Path, help="write every figure here")
    parser.add_argument("--markdown", type=Path, help="write the table here, beside standard output")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    results: dict[str, Any] = {"machine": describe_machine(), "cases": []}
    with enter_scratch() as folder:
        for rate in arguments.rates:
            for width in arguments.widths:
                results["cases"].append(measure(folder, rate, width, arguments.steps))
    publish(render(results), results, arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
