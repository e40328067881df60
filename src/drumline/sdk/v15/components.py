"""
``Component`` returns functions of a component's inputs; a call of one returns a ``StepNode``.

Source: https://learn.microsoft.com/python/api/azure-ml-component/azure.ml.component.component, 0.9.18.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import SpecError, UsageError
from drumline.control.assets import assets
from drumline.sdk.v1.submission import submit, validate
from drumline.sdk.v15.settings import RunSettings
from drumline.spec.jobs.command import Command, CommandComponent

if TYPE_CHECKING:
    from drumline.sdk.v1.workspace import Workspace
    from drumline.spec.jobs.component import Component as Today
    from drumline.spec.jobs.pipeline import PipelineJob


class StepNode(Command):
    """A component with its inputs: a step of a pipeline, and today's ``Command`` as well."""

    _home: Workspace | None = None

    @property
    def runsettings(self) -> RunSettings:
        return RunSettings(self)

    def set_inputs(self, *args: Any, **kwargs: Any) -> StepNode:
        """Set inputs by name. Raises SpecError for one that is not declared."""
        for name, value in self.component._bind_arguments((), kwargs).items():
            self.inputs[name] = to_input(value)
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> StepNode:
        home = self.__dict__.pop("_home", None)
        try:
            copied = super().__deepcopy__(memo)
        finally:
            if home is not None:
                self.__dict__["_home"] = home
        assert isinstance(copied, StepNode)
        copied.__dict__["_home"] = home
        return copied

    def submit(
        self, experiment_name: str | None = None, tags: dict[str, str] | None = None, **kwargs: Any
    ) -> Any:
        """Submit it as a job of its own, as ``Pipeline.submit``."""
        return submit(self, self._home, experiment_name, tags=tags)

    def validate(self, raise_error: bool = False, **kwargs: Any) -> Any:
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

    def __call__(self, *args: Any, **kwargs: Any) -> StepNode | PipelineJob:
        """Return a step with these inputs. Raises SpecError for one that is not declared."""
        given = {
            name: to_input(value) for name, value in self._component._bind_arguments(args, kwargs).items()
        }
        if not isinstance(self._component, CommandComponent):
            made: PipelineJob = self._component(**given)  # type: ignore[operator]
            return made
        node = StepNode(component=self._component, inputs=given)
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
        Load a component's file, old or new, and return its function. Raises SpecError with every problem of it.
        """
        if yaml_file is None:
            raise UsageError("yaml_file is missing", 'Component.from_yaml(ws, yaml_file="component.yml")')
        return Function(workspace, _load_component(yaml_file))

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
        Load a registered component, by default the latest. ``selector``: ``name``, ``name:version`` or
        ``name@label``. Raises NotFoundError.
        """
        label = None
        if selector:
            name, version, label = _parse_selector(selector)
        if not name:
            raise UsageError("name is missing", 'Component.load(ws, name="train")')
        with workspace._here():
            return Function(workspace, assets.get("component", name, version=version, label=label))

    @staticmethod
    def batch_load(
        workspace: Workspace, ids: Any = None, selectors: Any = None, **kwargs: Any
    ) -> list[Function]:
        """
        Load several, in the order of ``selectors``: strings as for ``load``, or tuples. Raises NotFoundError.
        """
        if ids:
            raise UsageError("ids of components are not supported", "use selectors=['train:1']")
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
        with workspace._here():
            kept = assets.create(_load_component(yaml_file), version=version)
            return Function(workspace, assets.get("component", kept.name, version=str(kept.version)))


def _load_component(path: str | os.PathLike[str]) -> Today:
    from drumline.compat import distributed_component
    from drumline.spec.load import load_component
    from drumline.spec.reading.files import read_yaml

    place = os.fspath(path)
    if distributed_component.is_todays_component(read_yaml(place, place)):
        found: Today = load_component(place)
        return found
    return distributed_component.load(place)


def _parse_selector(selector: str) -> tuple[str, str | None, str | None]:
    name, sign, rest = selector.partition("@")
    if sign:
        return name, None, rest
    name, _, rest = selector.partition(":")
    return name, rest or None, None


def to_input(value: Any) -> Any:
    """Convert a dataset of v1 to today's input; leave others as they are. Raises SpecError for several outputs."""
    if hasattr(value, "_as_input"):
        return value._as_input()
    if hasattr(value, "as_mount") and hasattr(value, "path"):
        return value.as_mount()._as_input()
    if isinstance(value, StepNode):
        outputs = list(value.outputs.values())
        if len(outputs) != 1:
            raise SpecError(
                f"a component with {len(outputs)} outputs cannot be an input", "name one: .outputs.x"
            )
        return outputs[0]
    return value
