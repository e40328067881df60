"""
The base of all groups of ``MLClient``'s methods, which run in their client's workspace.

A group is a subclass, and needs nothing more::

    class DataOperations(Operations):
        def get(self, name: str, version: str | None = None, label: str | None = None) -> Data: ...

``MLClient.__init__`` creates it (``self.data = DataOperations()``). Each of its public methods then runs in the
workspace in which the object was created, even if another one is current when it is called:
``contract.folder.home()`` is right in everything that it calls. An iterator that a method returns takes each of its
steps there too, however late. Objects that a method returns for later use, such as pollers, subclass ``Operations``.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from types import FunctionType
from typing import TYPE_CHECKING, Any

from drumline.compat.azure_ai_ml import translate_object
from drumline.contract import folder
from drumline.control.terminal import clean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Self


class Operations:
    _workspace: str | None
    """As ``folder.workspace`` takes it."""

    def __new__(cls, *args: object, **kwargs: object) -> Self:
        made = super().__new__(cls)
        made._workspace = folder.chosen_workspace()
        return made

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name, value in list(vars(cls).items()):
            if isinstance(value, FunctionType) and not name.startswith("_"):
                setattr(cls, name, _bind_to_workspace(value))


def _bind_to_workspace(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def run(self: Operations, *args: Any, **kwargs: Any) -> Any:
        # Objects of azure-ai-ml are taken wherever ours are.
        args, kwargs = (
            tuple(map(translate_object, args)),
            {name: translate_object(value) for name, value in kwargs.items()},
        )
        with folder.workspace(self._workspace):
            result = method(self, *args, **kwargs)
        if isinstance(result, Iterator) and not isinstance(result, Operations):
            return _iterate_in(result, self._workspace)
        return result

    return run


def _iterate_in(iterator: Iterator[Any], workspace: str | None) -> Iterator[Any]:
    while True:
        with folder.workspace(workspace):
            try:
                step = next(iterator)
            except StopIteration:
                return
        yield step


def print_warnings(warnings: Iterable[str]) -> None:
    """Print each to standard error, as azure-ai-ml does."""
    for warning in warnings:
        print(f"warning: {clean(warning)}", file=sys.stderr)
