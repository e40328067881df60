"""
``drumline tune`` against an exhaustive run over the same twelve settings: does it find the same, and in what time?

See README.md beside it. It needs PyTorch.
"""

import argparse
import contextlib
import io
import json
import statistics
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from machine import describe_machine, publish
from processes import enter_scratch

from drumline.cli.main import main as drumline

HERE = Path(__file__).resolve().parent
OVER = "batch=8|16|32|64,workers=0|1|2"
NEAR = 0.95
"""Of the best setting's samples per second: what chance may make of two that are equal."""


def write_job(folder: Path, seed: int) -> Path:
    job = {
        "command": "python train.py --batch ${{inputs.batch_size}} --workers ${{inputs.num_workers}} "
        "--seed ${{inputs.seed}}",
        "code": str(HERE),
        "inputs": {"batch_size": 8, "num_workers": 0, "seed": seed},
        "environment_variables": {"OMP_NUM_THREADS": "1"},
    }
    path = folder / f"job-{seed}.yml"
    path.write_text(json.dumps(job))
    return path


def tune(path: Path, steps: int, *more: str) -> dict[str, Any]:
    """What the command prints. Raises RuntimeError for one that finds nothing."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = drumline(
            [
                "tune",
                "-f",
                str(path),
                "--for",
                "throughput",
                "--over",
                OVER,
                "--steps",
                str(steps),
                "-o",
                "json",
                *more,
            ]
        )
    if code:
        raise RuntimeError(f"drumline tune {' '.join(more)} ended with {code}")
    found: dict[str, Any] = json.loads(out.getvalue())
    return found


def compare(folder: Path, seed: int, steps: int) -> dict[str, Any]:
    path = write_job(folder, seed)
    first, second = ("", "--exhaustive") if seed % 2 else ("--exhaustive", "")
    runs = {one: tune(path, steps, *([one] if one else [])) for one in (first, second)}
    halved, full = runs[""], runs["--exhaustive"]
    rates = {json.dumps(row["setting"]): row["metric"] for row in full["settings"]}
    chosen = json.dumps(halved["best"]["setting"])
    found = {
        "seed": seed,
        "settings": len(rates),
        "best": full["best"]["setting"],
        "chosen": halved["best"]["setting"],
        "share": rates[chosen] / max(rates.values()),
        "exhaustive_s": full["seconds"],
        "tune_s": halved["seconds"],
        "runs": halved["runs"],
    }
    say(
        f"seed {seed}: {found['chosen']} after {found['tune_s']} s, {found['best']} after {found['exhaustive_s']} s"
    )
    return found


def say(text: str) -> None:
    print(f"tune: {text}", file=sys.stderr, flush=True)


def render(results: dict[str, Any]) -> str:
    lines = [f"- {name}: {value}" for name, value in results["machine"].items()]
    cases = results["cases"]
    same = sum(one["chosen"] == one["best"] for one in cases)
    near = sum(one["share"] >= NEAR for one in cases)
    ratios = [one["tune_s"] / one["exhaustive_s"] for one in cases]
    lines += [
        f"- the same setting in {same} of {len(cases)} cases, one within 5 % of it in {near}",
        f"- share of the exhaustive run's time: median {statistics.median(ratios):.2f}, at most {max(ratios):.2f}",
        "",
        "| seed | best of all | found by `tune` | its samples/s, of the best | all, s | `tune`, s | share | runs |",
        "| ---: | --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    lines += [_render_case(one) for one in cases]
    return "\n".join(lines) + "\n"


def _render_case(one: dict[str, Any]) -> str:
    best, chosen = (
        ", ".join(f"{name} {value}" for name, value in one[key].items()) for key in ("best", "chosen")
    )
    ratio = one["tune_s"] / one["exhaustive_s"]
    return (
        f"| {one['seed']} | {best} | {chosen} | {100 * one['share']:.0f} % "
        f"| {one['exhaustive_s']:.1f} | {one['tune_s']:.1f} | {ratio:.2f} | {one['runs']} |"
    )


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5, help="sets of costs (5)")
    parser.add_argument("--steps", type=int, default=120, help="of a setting that is measured whole (120)")
    parser.add_argument("--json", type=Path, help="write every figure here")
    parser.add_argument("--markdown", type=Path, help="write the table here, beside standard output")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    results: dict[str, Any] = {"machine": describe_machine(), "cases": []}
    with enter_scratch() as folder:
        for seed in range(1, arguments.seeds + 1):
            results["cases"].append(compare(folder, seed, arguments.steps))
    publish(render(results), results, arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
