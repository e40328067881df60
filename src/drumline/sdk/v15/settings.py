"""
``component.runsettings``: how a node of a pipeline runs.

Source: azure-ml-component 0.9.18.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drumline.contract.errors import SpecError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeAlias

    from drumline.spec.jobs.command import Command

    Put: TypeAlias = Callable[[Command, Any], None]
    """Gives a node a value."""


class SettingsSection:
    """A part of the settings, which passes what is set on it, by ``configure`` or as an attribute, to the node."""

    _node: Command
    _name: str
    _known: Mapping[str, Put]

    def __init__(self, node: Command, name: str, known: Mapping[str, Put]) -> None:
        object.__setattr__(self, "_node", node)
        object.__setattr__(self, "_name", name)
        object.__setattr__(self, "_known", known)

    def configure(self, **kwargs: Any) -> None:
        for name, value in kwargs.items():
            setattr(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        if value is None:
            return
        put = self._known.get(name)
        if put is None:
            self._node._warnings.append(f"{self._name}.{name}: not used")
        else:
            put(self._node, value)


class RunSettings(SettingsSection):
    """The settings of a node. Other sections than these are accepted, with a warning."""

    def __init__(self, node: Command) -> None:
        super().__init__(node, "runsettings", _TOP)

    @property
    def resource_layout(self) -> SettingsSection:
        """Return the section of ``instance_count`` or ``node_count``, and ``process_count_per_node``."""
        return SettingsSection(self._node, "runsettings.resource_layout", _LAYOUT)

    @property
    def docker_configuration(self) -> SettingsSection:
        return SettingsSection(self._node, "runsettings.docker_configuration", _DOCKER)

    @property
    def environment(self) -> SettingsSection:
        return SettingsSection(self._node, "runsettings.environment", {})

    def __getattr__(self, name: str) -> SettingsSection:
        if name.startswith("_"):
            raise AttributeError(name)
        return SettingsSection(self._node, f"runsettings.{name}", {})


def compute_name(target: Any) -> str:
    """Return the name of a compute, or the name itself. Raises UsageError."""
    name = target if isinstance(target, str) else getattr(target, "name", None)
    if not isinstance(name, str) or not name:
        raise UsageError(f"target must be a compute or its name; got {target!r}")
    return name


def _nodes(node: Command, value: Any) -> None:
    node.set_resources(instance_count=value)


def _processes(node: Command, value: Any) -> None:
    distribution: Any = node.distribution
    if hasattr(distribution, "process_count_per_instance"):
        distribution.process_count_per_instance = value
    elif value != 1:
        raise SpecError(
            "process_count_per_node: the component has no launcher and runs once per node",
            "a DistributedComponent",
        )


def _target(node: Command, value: Any) -> None:
    node.compute = compute_name(value)


def _variables(node: Command, value: Any) -> None:
    if not isinstance(value, dict):
        raise SpecError(
            f"environment_variables must be a dict, got {type(value).__name__}",
            "environment_variables={'NAME': 'value'}",
        )
    node.environment_variables.update(value)


def _seconds(node: Command, value: Any) -> None:
    node.set_limits(timeout=value)


_LAYOUT: dict[str, Put] = {
    "instance_count": _nodes,
    "node_count": _nodes,
    "process_count_per_node": _processes,
    "process_count_per_instance": _processes,
}
_DOCKER: dict[str, Put] = {
    "shm_size": lambda node, value: node.set_resources(shm_size=value),
    "arguments": lambda node, value: node.set_resources(docker_args=value),
    "use_docker": lambda node, value: None,
    "shared_volumes": lambda node, value: None,
}
_TOP: dict[str, Put] = {
    "target": _target,
    "environment_variables": _variables,
    "timeout_seconds": _seconds,
    "priority": lambda node, value: node.set_queue_settings(priority=value),
    **_LAYOUT,
}
