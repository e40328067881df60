"""
What all groups of ``MLClient``'s methods have in common: they run in their client's workspace.

A group is a subclass, and needs nothing more::

    class DataOperations(Operations):
        def get(self, name: str, version: str | None = None, label: str | None = None) -> Data: ...

``MLClient.__init__`` makes it (``self.data = DataOperations()``). Each of its public methods is then run in the
workspace in which the object was made, whatever is current when it is called: ``contract.folder.home()`` is right in
all that it calls. An iterator that a method returns takes each of its steps there too, however late. What a method
returns for later use, such as a poller, subclasses ``Operations`` as well.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from types import FunctionType
from typing import TYPE_CHECKING, Any

from drumline.compat.azure_ai_ml import adopted
from drumline.contract import folder

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self


class Operations:
    _workspace: str | None
    """As of ``folder.workspace``."""

    def __new__(cls, *args: object, **kwargs: object) -> Self:
        made = super().__new__(cls)
        made._workspace = folder.chosen_workspace()
        return made

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name, value in list(vars(cls).items()):
            if isinstance(value, FunctionType) and not name.startswith("_"):
                setattr(cls, name, _in_workspace(value))


def _in_workspace(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def run(self: Operations, *args: Any, **kwargs: Any) -> Any:
        # Objects of azure-ai-ml are taken wherever ours are.
        args, kwargs = tuple(map(adopted, args)), {name: adopted(value) for name, value in kwargs.items()}
        with folder.workspace(self._workspace):
            result = method(self, *args, **kwargs)
        return _steps(result, self._workspace) if isinstance(result, Iterator) else result

    return run


def _steps(iterator: Iterator[Any], workspace: str | None) -> Iterator[Any]:
    while True:
        with folder.workspace(workspace):
            try:
                step = next(iterator)
            except StopIteration:
                return
        yield step
