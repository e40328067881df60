"""The screen of ``drumline job top``: a snapshot of ``control.usage`` as lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drumline.contract.words import format_duration, format_rate, format_size
from drumline.control.jobs.lookup import as_arguments
from drumline.control.observing import usage
from drumline.control.observing.steps import words
from drumline.control.terminal import clean

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_STALE_S = 15.0
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_LEFT_OUT = (
    *("SWAP", "HEAT", "PROCS", "THREADS", "POWER", "PID", "LOAD", "DISK READ", "DISK WRITE"),
    *("READ", "WRITE", "WRITTEN", "PEAK", "NET IN", "NET OUT", "HOST", "GPU MEM", "OUTPUT"),
)
"""Columns that a narrow terminal does without, in this order."""


def format_usage(described: Mapping[str, Any], width: int | None = None) -> list[str]:
    """
    Format a title, then the nodes, GPUs and ranks; for a pipeline or a sweep, of each job under way.

    ``width``: of the terminal; columns that do not fit are left out. None: as wide as it takes.
    """
    if described["type"] == "command":
        return [_title(described), *_list_steps(described, width), *_tables(described, width)]
    lines = [_title(described)]
    for one in described["jobs"]:
        step, *rest = format_usage(one, width)
        lines += ["", clean(f"{one['step']}: {step}"), *rest]
    if not described["jobs"]:
        kind = "step" if described["type"] == "pipeline" else "trial"
        hint = f"drumline job show {as_arguments(described['name'])}"
        lines.append(f"no {kind} of it is under way now; each is a job of its own: {hint}")
    return lines


def _title(described: Mapping[str, Any]) -> str:
    name, seconds = described["name"], described["seconds"]
    if described["type"] == "command" and usage.is_over(described):
        took = "" if seconds is None else f" after {format_duration(seconds)}"
        if not described["nodes"]:
            return clean(f"job {name} is {described['status']}{took}; it was not sampled")
        return clean(f"job {name} is {described['status']}{took}: means and peaks of its last attempt")
    since = "after" if usage.is_over(described) else "for"
    lasted = "" if seconds is None else f" {since} {format_duration(seconds)}"
    reason = f": {described['reason']}" if described["reason"] else ""
    title = f"job {name} is {described['status']}{lasted}{reason}"
    if described["type"] == "command" and not described["nodes"]:
        title += "; there is no sample yet"
    return _clean_line(title)


def _clean_line(text: str) -> str:
    """Return what a job says as one line of a terminal."""
    return " ".join(clean(text).split())


def _list_steps(described: Mapping[str, Any], width: int | None) -> list[str]:
    steps = described.get("training")
    if not steps:
        return []
    parts = [_clean_line(part) for part in words.list_parts(steps, is_over=usage.is_over(described))]
    together = "; ".join(parts)
    return parts if width and len(together) > width else [together]


def _tables(described: Mapping[str, Any], width: int | None) -> list[str]:
    over = usage.is_over(described)
    tables = [_nodes(described["nodes"], over), _gpus(described["nodes"])]
    tables.append(_ended_ranks(described["ranks"]) if over else _ranks(described))
    lines: list[str] = []
    missing: dict[str, None] = {}
    for rows in tables:
        if len(rows) > 1:
            fitting, left_out = _choose_columns(rows, width)
            missing |= dict.fromkeys(left_out)
            lines += ["", *_align(fitting)]
    if missing:
        lines += ["", f"left out, for {width} columns: {', '.join(missing)}"]
    return lines


def _nodes(nodes: Sequence[Mapping[str, Any]], over: bool) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [
        ("NODE", "CPU", "MEMORY", "SWAP", "NET IN", "NET OUT", "DISK READ", "DISK WRITE", "LOAD", "HOST")
    ]
    for node in nodes:
        limit = node["memory_limit"]
        memory = f"{format_size(node['memory_bytes'])} of {format_size(node['memory_total_bytes'])}"
        if limit:
            memory += f" ({format_size(limit['used_bytes'])} of its limit of {format_size(limit['bytes'])})"
        late = (
            "" if over or node["age_seconds"] < _STALE_S else f" {format_duration(node['age_seconds'])} ago"
        )
        rows.append(
            (
                str(node["node"]),
                f"{_percent(node['cpu_percent'])} of {node['cores']}",
                memory,
                format_size(node["swap_bytes"]),
                format_rate(node["received_bytes_per_second"]),
                format_rate(node["sent_bytes_per_second"]),
                format_rate(node["read_bytes_per_second"]),
                format_rate(node["written_bytes_per_second"]),
                f"{node['load']:.2f}",
                _clean_line(f"{node['host'] or '-'}{late}"),
            )
        )
    return rows


def _gpus(nodes: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("NODE", "GPU", "BUSY", "MEMORY", "POWER", "HEAT", "RANKS", "NAME")]
    rows += [
        (
            str(node["node"]),
            clean(gpu["gpu"]),
            _percent(gpu["busy_percent"]),
            f"{format_size(gpu['memory_bytes'])} of {format_size(gpu['memory_total_bytes'])}",
            "-" if gpu["watts"] is None else f"{gpu['watts']:.0f} W",
            "-" if gpu["celsius"] is None else f"{gpu['celsius']} °C",
            ", ".join(map(str, gpu["ranks"])) or "-",
            clean(gpu["name"]),
        )
        for node in nodes
        for gpu in node["gpus"]
    ]
    return rows


def _ranks(described: Mapping[str, Any]) -> list[tuple[str, ...]]:
    heading = ("RANK", "NODE", "PID", "STATE", "CPU", "MEMORY", "PEAK", "READ", "WRITE")
    rows: list[tuple[str, ...]] = [(*heading, "PROCS", "THREADS", "GPU", "GPU MEM", "OUTPUT")]
    rows += [_row(rank["label"], rank) for rank in described["ranks"]]
    for node in described["nodes"]:
        if node.get("others"):
            rows.append(_row("(others)", {"node": node["node"], "state": "-", **node["others"]}))
    return rows


def _row(label: str, rank: Mapping[str, Any]) -> tuple[str, ...]:
    age = rank.get("seconds_since_output")
    return (
        clean(label),
        str(rank["node"]),
        str(rank.get("pid") or "-"),
        rank["state"],
        _percent(rank.get("cpu_percent")),
        format_size(rank.get("memory_bytes")),
        format_size(rank.get("peak_memory_bytes")),
        format_rate(rank.get("read_bytes_per_second")),
        format_rate(rank.get("written_bytes_per_second")),
        str(rank.get("processes", "-")),
        str(rank.get("threads", "-")),
        _percent(rank.get("gpu_busy_percent")),
        format_size(rank.get("gpu_memory_bytes")),
        "-" if age is None else f"{format_duration(age)} ago",
    )


def _ended_ranks(ranks: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("RANK", "NODE", "STATE", "MEAN CPU", "PEAK MEMORY", "READ", "WRITTEN")]
    rows += [
        (
            clean(rank["label"]),
            str(rank["node"]),
            rank["state"],
            _percent(rank.get("mean_cpu_percent")),
            format_size(rank.get("peak_memory_bytes")),
            format_size(rank.get("read_bytes")),
            format_size(rank.get("written_bytes")),
        )
        for rank in ranks
    ]
    return rows


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f} %"


def _choose_columns(
    rows: Sequence[tuple[str, ...]], width: int | None
) -> tuple[Sequence[tuple[str, ...]], list[str]]:
    """Return the table without columns that do not fit, empty ones first, and the headings of the others."""
    heads = rows[0]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    empty = [head for head, *cells in zip(*rows, strict=True) if all(cell == "-" for cell in cells)]
    kept = list(range(len(heads)))
    left_out: list[str] = []
    for head in dict.fromkeys((*empty, *_LEFT_OUT)):
        if width is None or sum(widths[at] + 2 for at in kept) - 2 <= width:
            break
        if head in heads:
            kept.remove(heads.index(head))
            left_out += [head] if head not in empty else []
    return [tuple(row[at] for at in kept) for row in rows], left_out


def _align(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
