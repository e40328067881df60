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


_JOIN_HEADS = [
    *("contender", "all ranks there, median s", "min", "max", "x floor", "x torchrun"),
    *("command returned, median s", "CPU s (median)", "samples"),
]


def render(results: Mapping[str, Any], floor: str) -> str:
    """All tables, with the machine above them and what is missing below."""
    parts = [machine_lines(results)]
    for case, samples in results["start"].items():
        parts.append(f"### {case}\n\n{start_table(samples, floor)}")
    for case, samples in results["stop"].items():
        parts.append(f"### {case}\n\n{stop_table(samples)}")
    for case, samples in [*results["join"].items(), *results["restart"].items()]:
        parts.append(f"### {case}\n\n{join_table(samples, floor)}")
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


def join_table(samples: Mapping[str, Sequence[Mapping[str, float]]], floor: str) -> str:
    """The floor and the faster of torchrun's rows are what the others are compared with."""
    medians = {
        name: statistics.median(start["joined_s"] for start in starts)
        for name, starts in samples.items()
        if starts
    }
    torchrun_s = min((s for name, s in medians.items() if name.startswith("torchrun")), default=None)
    rows = []
    for name, joined_s in medians.items():
        starts = samples[name]
        ratios = [
            f"{joined_s / other_s:.3f}" if other_s else "-" for other_s in (medians.get(floor), torchrun_s)
        ]
        others = [statistics.median(start[key] for start in starts) for key in ("returned_s", "cpu_s")]
        rows.append(
            [
                *(name, *spread([start["joined_s"] for start in starts]), *ratios),
                *(f"{value:.2f}" for value in others),
                str(len(starts)),
            ]
        )
    return table(_JOIN_HEADS, rows)


def spread(values: Sequence[float | None]) -> list[str]:
    """Median, least and greatest; 'stayed' where a process was still there at the limit."""
    ordered = [float("inf") if value is None else value for value in values]
    chosen = (statistics.median(ordered), min(ordered), max(ordered))
    return ["stayed" if value == float("inf") else f"{value:.3f}" for value in chosen]


def remarks(results: Mapping[str, Any]) -> str:
    lines = []
    stopped = [stops for samples in results["stop"].values() for stops in samples.values()]
    if any(stop["all_gone_s"] is None for stops in stopped for stop in stops):
        lines.append(
            f"- stayed: some process was still there {results['stop_timeout_s']:g} s after the failure"
        )
    lines += keeper_remarks(results)
    lines += [f"- not measured: {name}: {reason}" for name, reason in results["absent"].items()]
    lines += [f"- failed: {failure}" for failure in results["failures"]]
    return "\n".join(lines)


def keeper_remarks(results: Mapping[str, Any]) -> list[str]:
    """A line for each contender that was to keep something for its next job and did not."""
    lines = []
    for case, samples in [*results["join"].items(), *results["restart"].items()]:
        for name in sorted(set(results["keepers"]) & samples.keys()):
            kept = [start["kept_count"] for start in samples[name]]
            if not all(kept):
                lines.append(f"- nothing kept warm: {name}, {case}: {kept.count(0)} of {len(kept)} samples")
    return lines


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table, its first column to the left and the others to the right."""
    rule = ["---", *["---:"] * (len(heads) - 1)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [heads, rule, *rows])
