"""The options of sbatch that a compute of Slurm may give its jobs."""

from __future__ import annotations

import re

from drumline.contract.sbatch import OURS, USERS
from drumline.spec.kinds.lines import Line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from drumline.spec.kinds.report import Report
    from drumline.spec.reading.tree import Node


class SbatchOption(Line):
    """``--name`` or ``--name=value``, of those that are the user's to choose."""

    def __init__(self) -> None:
        super().__init__()

    def take(self, node: Node, path: str, report: Report) -> Any:
        value = super().take(node, path, report)
        if value is None:
            return None
        what, hint = refusal_of(value)
        if what:
            report.add(f"{path}: {what}", node, path, hint)
            return None
        return value


_FIELDS = {
    "requeue": "use `requeue: true`",
    "no-requeue": "use `requeue: false`",
    "partition": "use `partition:`",
    "account": "use `account:`",
    "qos": "use `qos:`",
    "time": "use `time_limit:`",
    "nice": "use `priorities:`",
}
_OURS = {**OURS, **_FIELDS, "clusters": "one compute is one cluster; `slurm_conf` says which"}
_LETTERS = {
    "N": "nodes", "n": "ntasks", "J": "job-name", "o": "output", "e": "error", "i": "input", "a": "array",
    "D": "chdir", "M": "clusters", "p": "partition", "A": "account", "q": "qos", "t": "time", "W": "wait",
    "Q": "quiet", "h": "help", "V": "version", "C": "constraint", "w": "nodelist", "x": "exclude", "G": "gpus",
    "c": "cpus-per-task", "d": "dependency", "L": "licenses", "F": "nodefile", "H": "hold", "k": "no-kill",
}  # fmt: skip


def refusal_of(option: str) -> tuple[str, str]:
    """Return why an option of sbatch cannot be, and what to do; two empty texts for one that can."""
    found = re.fullmatch(r"--([a-z][a-z0-9-]*)(=.*)?", option)
    if found is None:
        return _misspelt(option)
    name = found[1]
    # sbatch takes an option by its beginning too.
    begun = next((one for one in _OURS if one.startswith(name)), "") if name not in USERS else ""
    ours = name if name in _OURS else begun
    if ours:
        return f"--{ours} is set by Drumline", _OURS[ours]
    if name in USERS:
        return "", ""
    import difflib

    close = difflib.get_close_matches(name, USERS, n=1)
    return (
        f"sbatch has no option --{name}",
        f"did you mean --{close[0]}?" if close else "long names, written out",
    )


def _misspelt(option: str) -> tuple[str, str]:
    letter = re.fullmatch(r"-([A-Za-z])(.*)", option)
    if letter:
        name = _LETTERS.get(letter[1], "NAME")
        value = letter[2].strip().removeprefix("=")
        long = f"--{name}" + (f"={value}" if value else "")
        what, hint = refusal_of(long) if name != "NAME" else ("", "")
        return (what, hint) if what else (f"{option!r} is short", f"write it long: {long}")
    parted = re.fullmatch(r"(--[a-z][a-z0-9-]*)\s+(.+)", option)
    if parted:
        return f"{option!r} is two words", f"write it as one: {parted[1]}={parted[2]}"
    return f"{option!r} is not an option of sbatch", "write it as --NAME or --NAME=VALUE"
