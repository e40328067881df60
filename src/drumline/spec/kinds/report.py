"""The mistakes and warnings found in one reading of a job, in the order of its file."""

from __future__ import annotations

from drumline.spec.reading.source import problem_at
from drumline.spec.reading.tree import Scalar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drumline.contract.errors import Problem
    from drumline.spec.reading.tree import Node


class Report:
    """Collects problems while schemas walk the tree."""

    def __init__(self, base_path: str) -> None:
        self.base_path = base_path
        """
        The folder that relative paths resolve against; changes while a referenced file is read.
        """
        self.open_files: tuple[str, ...] = ()
        """Referenced files being read, outermost first, so that a file cannot refer to itself."""
        self._anchor: tuple[int, int] | None = None
        self._found: list[tuple[int, int, Problem]] = []

    @property
    def problems(self) -> list[Problem]:
        return [entry[-1] for entry in sorted(self._found, key=lambda entry: entry[:2])]

    @property
    def count(self) -> int:
        return len(self._found)

    def add(self, what: str, node: Node, path: str, hint: str = "") -> None:
        if not hint and isinstance(node, Scalar) and node.surprise:
            hint = f"unquoted {node.text!r} is {node.surprise} in YAML 1.1; quote it"
            node.surprise = ""
        self.put(problem_at(node, what, path=path, hint=hint))

    def put(self, problem: Problem) -> None:
        line, column = self._anchor or (problem.line, problem.column)
        self._found.append((line, column, problem))

    def enter(self, node: Node, file: str, folder: str) -> tuple[object, ...]:
        """Read on in a referenced file; its problems are listed where ``node`` refers to it."""
        before = (self._anchor, self.base_path, self.open_files)
        self._anchor = self._anchor or (node.line, node.column)
        self.base_path = folder
        self.open_files = (*self.open_files, file)
        return before

    def leave(self, before: tuple[object, ...]) -> None:
        self._anchor, self.base_path, self.open_files = before  # type: ignore[assignment]
