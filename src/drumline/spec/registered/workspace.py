"""A workspace: a home of its own for jobs and assets."""

from __future__ import annotations

from drumline.contract.errors import SpecError
from drumline.spec.entity import Written, plain
from drumline.spec.keywords import describe_ignored

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from typing import IO, Any

    from drumline.spec.kinds.report import Report
    from drumline.spec.reading.tree import Node


class Workspace(Written):
    """
    ``id``, ``mlflow_tracking_uri`` and ``discovery_url`` are set by whoever stores it. What else Azure's takes is
    accepted with a warning: there is no account of anything to be made.
    """

    _fields = ("name", "display_name", "description", "tags", "location", "resource_group")

    def __init__(
        self,
        *,
        name: str,
        description: str | None = None,
        tags: dict[str, str] | None = None,
        display_name: str | None = None,
        location: str | None = None,
        resource_group: str | None = None,
        **kwargs: Any,
    ) -> None:
        from drumline.spec.schema.workspace import UNUSED

        self.name = name
        self.display_name = display_name
        self.description = description
        self.tags = dict(tags or {})
        self.location = location
        self.resource_group = resource_group
        self.id: str | None = None
        self.mlflow_tracking_uri: str | None = None
        self.discovery_url: str | None = None
        self._warnings = [
            _describe_unused(key, UNUSED, self._fields)
            for key, value in kwargs.items()
            if value not in (None, False)
        ]

    def _file(self) -> dict[str, Any]:
        return to_dict(self)

    def __repr__(self) -> str:
        return f"Workspace(name={self.name!r})"


def _describe_unused(key: str, known: tuple[str, ...], fields: tuple[str, ...]) -> str:
    if key in known:
        return f"{key}: not used; a workspace is a folder of this machine"
    return describe_ignored(key, fields)


def to_dict(workspace: Workspace) -> dict[str, Any]:
    """Return the keys of YAML, without what is not set."""
    return {key: value for key, item in workspace._values().items() if (value := plain(item)) != {}}


def load_workspace(
    source: str | os.PathLike[str] | IO[Any],
    *,
    relative_origin: str | os.PathLike[str] | None = None,
    params_override: list[dict[str, Any]] | None = None,
    **kwargs: Any,
) -> Workspace:
    """Load a workspace from a file. Raises SpecError with every problem of it."""
    from drumline.spec.kinds.report import Report
    from drumline.spec.reading.files import read_tree

    _, root, base_path = read_tree(source, relative_origin, params_override)
    return from_tree(root, Report(base_path))


def from_tree(root: Node, report: Report) -> Workspace:
    """Return the workspace of a file. Raises SpecError with every problem of the file."""
    from drumline.spec.schema.workspace import WORKSPACE

    values = WORKSPACE.check(root, "", report)
    if report.problems:
        raise SpecError(report.problems)
    return Workspace(**values)
