"""
Traps in a job file: what Azure and the shell accept, and what most likely is not meant.

The tree of the file is read, so that each trap has its line. docs/reference/lint.md has the rules by id.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from drumline.contract.record import compile_late
from drumline.control.lint import code_rules, command_rules
from drumline.control.lint.programs import UNKNOWN, Target, Trap, list_programs, list_texts
from drumline.spec.hints import did_you_mean
from drumline.spec.jobs.job import to_dict
from drumline.spec.reading.source import Mapping, Sequence, find, plain, problem_at, wrap

if TYPE_CHECKING:
    from collections.abc import Iterator


RULES = (
    "comment-in-command",
    "line-is-a-command",
    "broken-continuation",
    "single-braces",
    "path-of-another-machine",
    "nodes-without-distribution",
    "rank-variable",
    "secret-in-file",
    "unfilled-placeholder",
    "unused-input",
    "missing-script",
    "carriage-returns",
    "ignored-import",
    "local-rank-argument",
    "nccl-without-gpu",
)
UNKNOWN_RULE = "unknown-rule"


def find_traps(root: Mapping, folder: str, target: Target = UNKNOWN) -> list[Trap]:
    """
    Return the traps of a job's or component's file, in the order of its lines. Reads the files of its code.

    ``folder``: where its relative paths begin.
    """
    found: dict[tuple[str, str, str], Trap] = {}
    for trap in (*_find_in_programs(root, folder, target), *_find_in_file(root)):
        place = trap.problem.where or trap.problem.path
        found.setdefault((trap.rule, place, trap.problem.what), trap)
    return sorted(
        found.values(), key=lambda trap: (trap.problem.file, trap.problem.line, trap.problem.column)
    )


def _find_in_programs(root: Mapping, folder: str, target: Target) -> Iterator[Trap]:
    for program in list_programs(root, folder, target):
        ignored = {name for mapping in (*program.settings, root) for name in _list_ignored(mapping)}
        for rule in (*command_rules.RULES, *code_rules.RULES):
            yield from (trap for trap in rule(program) if trap.rule not in ignored)


def _find_in_file(root: Mapping) -> Iterator[Trap]:
    ignored = _list_ignored(root)
    for name in ignored:
        if name not in RULES:
            hint = did_you_mean(name, RULES) or "docs/reference/lint.md has the rules"
            node = find(root, "drumline.lint.ignore") or root
            problem = problem_at(
                node, f"there is no rule {name!r} to ignore", path="drumline.lint.ignore", hint=hint
            )
            yield Trap(UNKNOWN_RULE, problem)
    for trap in (*_find_placeholders(root), *_find_unused_in_pipeline(root)):
        if trap.rule not in ignored:
            yield trap


def _list_ignored(mapping: Mapping) -> list[str]:
    """Return the rules that a job ignores."""
    settings = mapping.get("drumline")
    lint = settings.get("lint") if isinstance(settings, Mapping) else None
    ignored = lint.get("ignore") if isinstance(lint, Mapping) else None
    return [str(item) for item in plain(ignored)] if isinstance(ignored, Sequence) else []


_UNFILLED = compile_late(
    r"(?<![\w<$])<(?:(?P<sure>[A-Z][A-Z0-9]*[_-][A-Z0-9_-]+|(?:your|my|YOUR|MY)\b[^<>\n]*)"
    r"|[A-Za-z][\w. -]+)>(?![\w>])"
)


def _find_placeholders(root: Mapping) -> Iterator[Trap]:
    """Find what an example has left to its reader. Commands and values have angles of their own, such as ``<pad>``."""
    for path, scalar in list_texts(root, ""):
        found = _UNFILLED.search(scalar.value) if "<" in scalar.value else None
        field = path.rpartition(".")[2]
        is_free = field in ("command", "value") or re.search(
            r"(^|\.)(inputs|tags|environment_variables)\.[^.]+$", path
        )
        is_sure = found and (
            found["sure"] if field != "command" else re.match("<(your|my)\\b", found[0], re.IGNORECASE)
        )
        if found and field not in ("description", "display_name") and (is_sure or not is_free):
            what = f"{found[0]} is still to be filled in"
            yield Trap(
                "unfilled-placeholder", problem_at(scalar, what, path=path, hint="write your own value")
            )


def _find_unused_in_pipeline(root: Mapping) -> Iterator[Trap]:
    jobs, inputs = root.get("jobs"), root.get("inputs")
    if not isinstance(jobs, Mapping) or not isinstance(inputs, Mapping):
        return
    texts = " ".join(text.value for _, text in list_texts(jobs, ""))
    for name, key, _ in inputs:
        if not re.search(rf"\binputs\.{re.escape(str(name))}\b", texts):
            what, hint = f"no step uses the input {name!r}", f"bind it: ${{{{parent.inputs.{name}}}}}"
            yield Trap("unused-input", problem_at(key, what, path=f"inputs.{name}", hint=hint))


def find_traps_of(job: Any, target: Target) -> list[Trap]:
    """Return the traps of a job that was loaded, or made in Python, which then has no lines."""
    root = job._root or wrap(to_dict(job))
    assert isinstance(root, Mapping)
    return find_traps(root, job.base_path, target)
