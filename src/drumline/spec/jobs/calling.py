"""A job that may be the call of a component, and that can be registered as one where it is not."""

from __future__ import annotations

from copy import deepcopy

from drumline.contract.errors import SpecError
from drumline.spec import builder
from drumline.spec.entity import fill
from drumline.spec.jobs.job import Job
from drumline.spec.kinds.fields import field
from drumline.spec.kinds.parts import list_kinds
from drumline.spec.kinds.values import refuse_wrong
from drumline.spec.parts.io import INPUTS, OUTPUTS, Inputs, Outputs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Self

    from drumline.spec.kinds.fields import MadeOf
    from drumline.spec.kinds.parts import Part


class Calling(Job):
    _adopted: tuple[str, ...] = ()
    """Fields that it takes from its component where it has none itself: scripts change them of a node."""

    _input_example = ""
    """How its inputs are given in a call."""

    inputs: MadeOf[Inputs] = field(INPUTS, factory=Inputs)
    outputs: MadeOf[Outputs] = field(OUTPUTS, factory=Outputs)

    def _become_node(self) -> None:
        """End the constructor: take what the component has, and join the pipeline that is being built."""
        self._is_pattern = self.called_component is None
        """Whether, within a pipeline, it is a node only as long as it is not called."""
        self._replaced: dict[str, Any] = {}
        """Inputs as they were before the call that it comes from gave others."""
        if hasattr(self.called_component, "outputs"):
            self._take_after(self.called_component)
        builder.register(self)

    def _take_after(self, component: Any) -> None:
        for name in self._adopted:
            if getattr(self, name) is None:
                setattr(self, name, deepcopy(getattr(component, name)))
        for name, output in component.outputs.items():
            if name not in self.outputs:
                self.outputs[name] = deepcopy(output)

    def _set_given(self, attribute: str, make: type[Part], given: dict[str, Any]) -> None:
        """
        Set those fields of an attribute that are not None; ``make`` makes the attribute where it is not there.

        Raises SpecError for a value that its field cannot hold.
        """
        if make._checks_values:
            refuse_wrong(given, list_kinds(make))
        target = getattr(self, attribute) or make()
        for name, value in given.items():
            if value is not None:
                setattr(target, name, value)
        setattr(self, attribute, target)

    def __call__(self, *args: Any, **kwargs: Any) -> Self:
        """Copy the job with some inputs replaced. Raises SpecError for an input that it does not have."""
        if args:
            raise SpecError("a job takes inputs by name", f"write {self._input_example}")
        takes = {**self.inputs, **getattr(self.called_component, "inputs", {})}
        unknown = next((name for name in kwargs if name not in takes), None)
        if unknown is not None:
            known = ", ".join(map(repr, takes)) or "none"
            raise SpecError(f"the job has no input {unknown!r}", f"valid keywords: {known}")
        if self._is_pattern:
            builder.withdraw(self)
        copied = deepcopy(self)
        copied._is_pattern = False
        copied.name = None
        copied._replaced = {name: self.inputs[name] for name in kwargs if name in self.inputs}
        fill(copied.inputs, kwargs)
        builder.register(copied)
        return copied

    @property
    def component(self) -> Any:
        """Return the component that it calls, or what refers to one; else what the job itself would be as one."""
        own = self.called_component
        return own if own is not None else self._implied_component()

    @component.setter
    def component(self, value: Any) -> None:
        self.__dict__["component"] = value

    def _implied_component(self) -> Any:
        """Return the component that the job would be, with its inputs as declarations."""
        raise NotImplementedError

    @property
    def called_component(self) -> Any:
        """Return the component that it calls; None for none."""
        return self.__dict__.get("component")

    def _values(self) -> dict[str, Any]:
        values = {
            name: self.called_component if name == "component" else getattr(self, name, None)
            for name in self._fields
        }
        return {name: value for name, value in values.items() if value is not None}
