"""Checks between the fields of a job: names that refer to each other, and choices that exclude each other."""

from __future__ import annotations

import re

from drumline.spec.parts.environment import check_recipe
from drumline.spec.placeholders import undefined_inputs
from drumline.spec.reading.tree import Mapping, Scalar, plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drumline.spec.kinds.report import Report
    from drumline.spec.reading.tree import Node

_KEY = r"[A-Za-z_][A-Za-z0-9_]*\Z"
_DOTTED_KEY = r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*\Z"


def check_command(job: Mapping, report: Report) -> None:
    """Check a command job, after its fields."""
    check_bindings(job.get("command"), job.get("inputs"), "command", report)
    check_keys(job.get("inputs"), "inputs", report)
    check_keys(job.get("outputs"), "outputs", report)
    check_environment(job.get("environment"), "environment", report)


def check_sweep(job: Mapping, report: Report) -> None:
    trial = job.get("trial")
    if isinstance(trial, Mapping):
        check_bindings(trial.get("command"), job.get("inputs"), "trial.command", report, loose=True)
        check_environment(trial.get("environment"), "trial.environment", report)
    for name in ("inputs", "outputs", "search_space"):
        check_keys(job.get(name), name, report)


def check_bindings(
    command: Node | None, inputs: Node | None, path: str, report: Report, *, loose: bool = False
) -> None:
    """
    Check that every ``${{inputs.x}}`` of a command names an input.

    loose: count single braces too, as azure-ai-ml does for the trial of a sweep.
    """
    if not isinstance(command, Scalar) or not isinstance(command.value, str):
        return
    text = command.value
    if loose:
        text = re.sub(r"(?<![{$])\{(inputs\.[\w.-]+)\}(?!\})", r"${{\1}}", text)
    known = plain(inputs) if isinstance(inputs, Mapping) else {}
    for name in undefined_inputs(text, known):
        what = f"{path} refers to ${{{{inputs.{name}}}}}, which is not an input"
        report.add(what, command, path, _input_hint(name, known))


def _input_hint(name: str, known: dict[str, object]) -> str:
    owner, dot, rest = name.partition(".")
    if dot and owner in known:
        return f"write ${{{{inputs.{owner}}}}}: it is the path" if rest == "path" else ""
    from drumline.spec.hints import did_you_mean

    return did_you_mean(name, known) or "inputs of the job: " + (", ".join(known) or "none")


def check_keys(node: Node | None, path: str, report: Report, *, dotted: bool = False) -> None:
    pattern = _DOTTED_KEY if dotted else _KEY
    for key, key_node, _ in node if isinstance(node, Mapping) else ():
        if isinstance(key, str) and not re.match(pattern, key):
            rule = "may hold letters, digits and '_', and not begin with a digit"
            what = f"the name {key!r} in {path} {rule}"
            fixed = re.sub(r"\W", "_", key, flags=re.ASCII)
            hint = f"did you mean {fixed!r}?" if re.match(_KEY, fixed) else ""
            report.add(what, key_node, f"{path}.{key}", hint)


def check_environment(node: Node | None, path: str, report: Report) -> None:
    """Check that an environment that is written out is an image or a build context."""
    if isinstance(node, Mapping):
        values = {key: plain(value) for key, _, value in node}
        check_recipe(values, node, path, report)
