"""
``Component``: what gives a function of a component's inputs, and ``Node``, what a call of that gives.

Source: https://learn.microsoft.com/python/api/azure-ml-component/azure.ml.component.component, 0.9.18.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import SpecError, UsageError
from drumline.sdk.v15.settings import RunSettings
from drumline.spec.command import Command
from drumline.spec.component import CommandComponent

if TYPE_CHECKING:
    from drumline.sdk.v1.workspace import Workspace
    from drumline.spec.component import Component as Today
    from drumline.spec.pipeline import PipelineJob


class Node(Command):
    """A component with its inputs: a step of a pipeline, and today's ``Command`` as well."""

    _home: Workspace | None = None

    @property
    def runsettings(self) -> RunSettings:
        return RunSettings(self)

    def set_inputs(self, *args: Any, **kwargs: Any) -> Node:
        """Raises SpecError for an input that is not declared."""
        for name, value in self.component._given((), kwargs).items():
            self.inputs[name] = plain(value)
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Node:
        home = self.__dict__.pop("_home", None)
        try:
            copied = super().__deepcopy__(memo)
        finally:
            if home is not None:
                self.__dict__["_home"] = home
        assert isinstance(copied, Node)
        copied.__dict__["_home"] = home
        return copied

    def submit(
        self, experiment_name: str | None = None, tags: dict[str, str] | None = None, **kwargs: Any
    ) -> Any:
        """As a job of its own; as ``Pipeline.submit``."""
        from drumline.sdk.v15.pipelines import submit

        return submit(self, self._home, experiment_name, tags=tags)

    def validate(self, raise_error: bool = False, **kwargs: Any) -> Any:
        from drumline.sdk.v15.pipelines import validate

        return validate(self, raise_error=raise_error)


class Function:
    """A component that is called with its inputs, in their order or by name."""

    def __init__(self, workspace: Workspace | None, component: Today) -> None:
        self._workspace = workspace
        self._component = component
        self.__name__ = component.name or "component"
        self.__doc__ = component.description

    name = property(lambda self: self._component.name)
    version = property(lambda self: self._component.version)

    def __call__(self, *args: Any, **kwargs: Any) -> Node | PipelineJob:
        """Raises SpecError for an input that is not declared."""
        given = {name: plain(value) for name, value in self._component._given(args, kwargs).items()}
        if not isinstance(self._component, CommandComponent):
            made: PipelineJob = self._component(**given)  # type: ignore[operator]
            return made
        node = Node(component=self._component, inputs=given)
        node.__dict__["_home"] = self._workspace
        return node

    def __repr__(self) -> str:
        return f"Function({self._component!r})"


class Component:
    @staticmethod
    def from_yaml(
        workspace: Workspace | None = None, yaml_file: str | os.PathLike[str] | None = None, **kwargs: Any
    ) -> Function:
        """
        The function of a component in a file, of that time or of today. Raises SpecError with every problem of it.
        """
        if yaml_file is None:
            raise UsageError("yaml_file is missing", 'Component.from_yaml(ws, yaml_file="component.yml")')
        return Function(workspace, _read(yaml_file))

    @staticmethod
    def load(
        workspace: Workspace,
        namespace: str | None = None,
        name: str | None = None,
        version: str | None = None,
        selector: str | None = None,
        **kwargs: Any,
    ) -> Function:
        """
        One that was registered; the latest without a version. ``selector``: ``name``, ``name:version`` or
        ``name@label``. Raises NotFoundError.
        """
        from drumline.control import assets

        label = None
        if selector:
            name, version, label = _selected(selector)
        if not name:
            raise UsageError("name is missing", 'Component.load(ws, name="train")')
        with workspace._here():
            return Function(workspace, assets.get("component", name, version=version, label=label))

    @staticmethod
    def batch_load(
        workspace: Workspace, ids: Any = None, selectors: Any = None, **kwargs: Any
    ) -> list[Function]:
        """
        In the order of ``selectors``: each as of ``load``, or ``(namespace, name, version)``. Raises NotFoundError.
        """
        if ids:
            raise UsageError("components have no ids here", "name them: selectors=['train:1']")
        found = []
        for one in selectors or ():
            if isinstance(one, str):
                found.append(Component.load(workspace, selector=one))
            else:
                namespace, name, version = (*one, None, None)[:3]
                found.append(Component.load(workspace, namespace, name, version))
        return found

    @staticmethod
    def register(
        workspace: Workspace,
        yaml_file: str | os.PathLike[str],
        version: str | None = None,
        set_as_default: bool = False,
        **kwargs: Any,
    ) -> Function:
        """Keep it in the workspace under its name. Raises SpecError, UsageError."""
        from drumline.control import assets

        with workspace._here():
            kept = assets.create(_read(yaml_file), version=version)
            return Function(workspace, assets.get("component", kept.name, version=str(kept.version)))


def _read(path: str | os.PathLike[str]) -> Today:
    from drumline.compat import distributed_component
    from drumline.spec.files import read
    from drumline.spec.load import load_component

    place = os.fspath(path)
    if distributed_component.is_of_today(read(place, place)):
        found: Today = load_component(place)
        return found
    return distributed_component.load(place)


def _selected(selector: str) -> tuple[str, str | None, str | None]:
    name, sign, rest = selector.partition("@")
    if sign:
        return name, None, rest
    name, _, rest = selector.partition(":")
    return name, rest or None, None


def plain(value: Any) -> Any:
    """A dataset of v1 as an input of today; anything else as it is. Raises SpecError for one of several outputs."""
    if hasattr(value, "_as_input"):
        return value._as_input()
    if hasattr(value, "as_mount") and hasattr(value, "path"):
        return value.as_mount()._as_input()
    if isinstance(value, Node):
        outputs = list(value.outputs.values())
        if len(outputs) != 1:
            raise SpecError(
                f"a component with {len(outputs)} outputs cannot be an input", "name one: .outputs.x"
            )
        return outputs[0]
    return value
