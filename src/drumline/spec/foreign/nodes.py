"""
Within a function under our ``@pipeline``, calls of mldesigner's functions and of azure-ai-ml's components give nodes
of ours.

With azure-ai-ml, every such call ends in the ``load_from_dict`` of its one node factory; without it, in the
``__call__`` of mldesigner's executors. Both give way for as long as the function runs.
"""

from __future__ import annotations

import functools
import sys
import threading
from contextlib import contextmanager

from drumline.contract.errors import SpecError
from drumline.spec import builder
from drumline.spec.foreign.components import component_of_executor, is_written_out
from drumline.spec.foreign.jobs import component_of
from drumline.spec.foreign_parts import HINT, is_within_theirs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_FACTORY = "azure.ai.ml.entities._job.pipeline._load_component"
_EXECUTORS = "mldesigner._component_executor"


_lock = threading.Lock()
_inside = 0
_replaced: list[tuple[Any, str, Any]] = []
"""What is to be put back: where, under which name, and what; None where the class's own shows again."""

_theirs: dict[str, Any] = {}
"""Their own, kept: a thread may be on its way to it when another puts it back."""


@contextmanager
def nodes_are_ours() -> Iterator[None]:
    """Make nodes ours meanwhile. It costs nothing where neither package is loaded."""
    global _inside  # noqa: PLW0603 - what gives way belongs to the process too
    with _lock:
        _inside += 1
        _replace()
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                _put_back()


def _replace() -> None:
    """Replace their functions, once for all pipelines that run at a time; a package may have been loaded since."""
    factory = getattr(sys.modules.get(_FACTORY), "pipeline_node_factory", None)
    if factory is not None and "load_from_dict" not in vars(factory):
        _replaced.append((factory, "load_from_dict", None))
        factory.load_from_dict = functools.partial(_node, factory)
    executor = getattr(sys.modules.get(_EXECUTORS), "ExecutorBase", None)
    if executor is not None and executor.__call__ is not _call:
        _replaced.append((executor, "__call__", executor.__call__))
        _theirs["__call__"] = executor.__call__
        executor.__call__ = _call
        _replaced.append((executor, "__copy__", None))
        executor.__copy__ = _copy


def _put_back() -> None:
    while _replaced:
        owner, name, before = _replaced.pop()
        if before is None:
            delattr(owner, name)
        else:
            setattr(owner, name, before)


def _node(factory: Any, *, data: dict[str, Any], _type: str | None = None) -> Any:
    if builder.current() is None:
        # Of another thread, or of what azure-ai-ml loads from a file meanwhile.
        return type(factory).load_from_dict(factory, data=data, _type=_type)
    if is_within_theirs():
        raise SpecError("azure.ai.ml's @pipeline cannot be called under drumline's", HINT)
    theirs = data.get("component")
    if theirs is None or is_written_out(theirs):
        raise SpecError("azure.ai.ml's command() cannot be called under drumline's @pipeline", HINT)
    component: Any = component_of(theirs)
    return component(**data.get("inputs", {}))


def _call(executor: Any, *args: Any, **named: Any) -> Any:
    if builder.current() is None:
        return _theirs["__call__"](executor, *args, **named)
    component: Any = component_of_executor(executor)
    return component(*args, **named)


def _copy(executor: Any) -> Any:
    """Copy an executor, as a call does for inputs of any name. Raises SpecError where it would be left out."""
    if builder.current() is not None:
        raise SpecError(f"{executor._name} takes inputs of any name", "name each parameter")
    made = object.__new__(type(executor))
    made.__dict__.update(vars(executor))
    return made
