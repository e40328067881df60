"""The results as Markdown; every number comes from the dictionary that is also written as JSON."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

_START_HEADS = ["contender", "median s", "min", "max", "x floor", "CPU s (median)", "samples"]
_STOP_HEADS = [
    "contender",
    "ranks gone, median s",
    "min",
    "max",
    "all gone, median s",
    "min",
    "max",
    "samples",
]


def render(results: Mapping[str, Any], floor: str) -> str:
    """All tables, with the machine above them and what is missing below."""
    parts = [machine_lines(results)]
    for case, samples in results["start"].items():
        parts.append(f"### {case}\n\n{start_table(samples, floor)}")
    if results["stop"]:
        parts.append(f"### Stop: from the first failure to the end\n\n{stop_table(results['stop'])}")
    parts.append(remarks(results))
    return "\n\n".join(part for part in parts if part) + "\n"


def machine_lines(results: Mapping[str, Any]) -> str:
    machine = [f"- {name}: {value}" for name, value in results["machine"].items()]
    versions = ", ".join(
        f"{name} {version}" for name, version in results["versions"].items() if version != "-"
    )
    loads = results["load_averages"]
    return "\n".join(
        [
            *machine,
            f"- load average after each round: {min(loads):.2f} to {max(loads):.2f}",
            f"- versions: {versions}",
            f"- rounds: {results['rounds']}",
        ]
    )


def start_table(samples: Mapping[str, Sequence[Mapping[str, float]]], floor: str) -> str:
    floor_s = statistics.median(sample["wall_s"] for sample in samples[floor]) if samples.get(floor) else None
    rows = []
    for name, starts in samples.items():
        if starts:
            walls = [start["wall_s"] for start in starts]
            ratio = f"{statistics.median(walls) / floor_s:.1f}" if floor_s else "-"
            cpu = f"{statistics.median(start['cpu_s'] for start in starts):.2f}"
            rows.append([name, *spread(walls), ratio, cpu, str(len(starts))])
    return table(_START_HEADS, rows)


def stop_table(samples: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    rows = []
    for name, stops in samples.items():
        if stops:
            ranks = spread([stop["ranks_gone_s"] for stop in stops])
            everything = spread([stop["all_gone_s"] for stop in stops])
            rows.append([name, *ranks, *everything, str(len(stops))])
    return table(_STOP_HEADS, rows)


def spread(values: Sequence[float | None]) -> list[str]:
    """Median, least and greatest; 'stayed' where a process was still there at the limit."""
    ordered = [float("inf") if value is None else value for value in values]
    chosen = (statistics.median(ordered), min(ordered), max(ordered))
    return ["stayed" if value == float("inf") else f"{value:.3f}" for value in chosen]


def remarks(results: Mapping[str, Any]) -> str:
    lines = []
    if any(stop["all_gone_s"] is None for stops in results["stop"].values() for stop in stops):
        lines.append(
            f"- stayed: some process was still there {results['stop_timeout_s']:g} s after the failure"
        )
    lines += [f"- not measured: {name}: {reason}" for name, reason in results["absent"].items()]
    lines += [f"- failed: {failure}" for failure in results["failures"]]
    return "\n".join(lines)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table, its first column to the left and the others to the right."""
    rule = ["---", *["---:"] * (len(heads) - 1)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [heads, rule, *rows])
