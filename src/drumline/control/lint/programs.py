"""The commands of a job file, each with what belongs to it; a trap in one of them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import SpecError
from drumline.contract.record import NamedTuple
from drumline.spec.paths import is_remote
from drumline.spec.reading.files import read_yaml
from drumline.spec.reading.source import Mapping, Node, Scalar, Sequence, problem_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drumline.contract.errors import Problem


class Trap(NamedTuple):
    """What Azure and the shell accept, and what most likely is not meant."""

    rule: str
    problem: Problem

    def __str__(self) -> str:
        first, newline, rest = str(self.problem).partition("\n")
        return f"{first} [{self.rule}]{newline}{rest}"

    def describe(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        problem = self.problem
        return {
            "rule": self.rule,
            "message": problem.what,
            "hint": problem.hint,
            "path": problem.path,
            "file": problem.file,
            "line": problem.line,
            "column": problem.column,
        }


class Target(NamedTuple):
    """The machine that the job is to run on, as far as it is known."""

    is_here: bool = False
    gpu_count: int | None = None
    """None: not known."""


UNKNOWN = Target()


class LintedCommand(NamedTuple):
    """A command with what belongs to it: the job, the trial of a sweep, a step of a pipeline, or a component."""

    path: str
    """Of its mapping within the file: empty, ``trial.``, ``jobs.train.``"""

    node: Mapping
    settings: tuple[Mapping, ...]
    """Where its settings stand, those that count first: of a step, then of its component."""

    whole: Mapping
    """What may name its inputs: the sweep of a trial."""

    folder: str
    """Where its relative paths begin."""

    target: Target

    @property
    def command(self) -> str:
        return str(self.node.value_of("command") or "")

    def find(self, *keys: str) -> Node | None:
        """Return the node at the keys, of the first settings that have it."""
        for mapping in self.settings:
            node: Node | None = mapping
            for key in keys:
                node = node.get(key) if isinstance(node, Mapping) else None
            if node is not None:
                return node
        return None

    def trap(self, rule: str, node: Node | None, field: str, what: str, hint: str) -> Trap:
        node = node or self.node
        return Trap(rule, problem_at(node, what, path=self.path + field, hint=hint))


def list_programs(root: Mapping, folder: str, target: Target) -> Iterator[LintedCommand]:
    if "command" in root:
        yield LintedCommand("", root, (root,), root, folder, target)
    trial = root.get("trial")
    if trial is not None:
        yield from _list_parts("trial.", trial, Mapping(), root, folder, target)
    jobs = root.get("jobs")
    for name, _, step in jobs if isinstance(jobs, Mapping) else ():
        if isinstance(step, Mapping):
            if "command" in step:
                yield LintedCommand(f"jobs.{name}.", step, (step,), step, folder, target)
            part = step.get("component") or step.get("trial")
            if part is not None:
                yield from _list_parts(f"jobs.{name}.", part, step, step, folder, target)


def _list_parts(
    path: str, part: Node, step: Mapping, whole: Mapping, folder: str, target: Target
) -> Iterator[LintedCommand]:
    """Yield the programs of a trial or component, which is written there or in a file of its own."""
    if isinstance(part, Mapping):
        if "command" in part:
            yield LintedCommand(path, part, (step, part, whole), whole, folder, target)
        return
    named = str(part.value or "").removeprefix("file:")
    if not named or is_remote(named) or named.startswith("azureml:"):
        return
    file = os.path.normpath(os.path.join(folder, named))
    try:
        node = read_yaml(file)
    except SpecError:
        return  # Whoever loads it says so.
    if "command" in node:
        yield LintedCommand("", node, (step, node), node, os.path.dirname(file), target)
    elif "jobs" in node and len(path) < _DEEPEST:
        yield from list_programs(node, os.path.dirname(file), target)


_DEEPEST = 1000


def list_texts(node: Node, path: str) -> Iterator[tuple[str, Scalar]]:
    if isinstance(node, Scalar):
        if isinstance(node.value, str):
            yield path, node
    elif isinstance(node, Mapping):
        for key, _, value in node:
            yield from list_texts(value, f"{path}.{key}" if path else str(key))
    elif isinstance(node, Sequence):
        for number, item in enumerate(node.items):
            yield from list_texts(item, f"{path}.{number}")
