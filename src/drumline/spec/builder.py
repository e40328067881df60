"""The nodes that a function under ``@pipeline`` has made so far."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_current: ContextVar[PipelineBuilder | None] = ContextVar("pipeline_builder", default=None)


class PipelineBuilder:
    """Nodes in the order in which they were made."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []

    def owner_of(self, output: Any) -> tuple[Any, str] | None:
        """Return the node that has just this output, and the output's name."""
        for node in self.nodes:
            for name, mine in node.outputs._with_replaced() if node.outputs else ():
                if mine is output:
                    return node, name
        return None


@contextmanager
def building(builder: PipelineBuilder | None) -> Iterator[PipelineBuilder | None]:
    """Collect nodes that are made meanwhile in this builder; None: in no builder."""
    token = _current.set(builder)
    try:
        yield builder
    finally:
        _current.reset(token)


def current() -> PipelineBuilder | None:
    return _current.get()


def register(node: Any) -> None:
    """Add a node to the pipeline that is being built, if there is one."""
    builder = _current.get()
    if builder is not None and not any(mine is node for mine in builder.nodes):
        builder.nodes.append(node)


def withdraw(node: Any) -> None:
    """Remove a node that was the pattern of another node, and is none itself."""
    builder = _current.get()
    if builder is not None:
        builder.nodes = [mine for mine in builder.nodes if mine is not node]
