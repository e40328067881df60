"""The common base of all jobs: names, notes, and where they were read from."""

from __future__ import annotations

import os

from drumline.contract.errors import hide_passwords
from drumline.spec.entity import plain, write_yaml
from drumline.spec.keywords import refuse_unknown
from drumline.spec.kinds.fields import Located, field
from drumline.spec.kinds.values import MapOf, Text
from drumline.spec.parts.bindings import PATTERN
from drumline.spec.parts.environment import settle_environment
from drumline.spec.parts.resources import IDENTITY, CommandJobLimits, JobResourceConfiguration, QueueSettings
from drumline.spec.parts.services import SERVICES
from drumline.spec.paths import is_remote, resolve

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import IO, Any

    from drumline.spec.kinds.fields import MadeOf, OrEmpty
    from drumline.spec.parts.services import Services
    from drumline.spec.reading.tree import Mapping

_TEXT = Text()
READ_ONLY = ("$schema", "id", "status", "creation_context", "log_files")
"""What ``job show`` and Azure print besides."""

_KEPT = ("is_deterministic", "id", "status", "creation_context", "log_files")
"""Keywords that azure-ai-ml knows and that say nothing here."""

_FLAT = tuple(
    name
    for name in (*JobResourceConfiguration._fields, *CommandJobLimits._fields, *QueueSettings._fields)
    if name not in ("max_instance_count", "properties")
)
"""Keywords of ``command()`` that a job does not keep as they are."""


class Job(Located):
    """
    ``status``, ``studio_url`` and the other read-only attributes are set by whoever stores the
    job.
    """

    type: str = field(_TEXT, "The type of this thing.", default="", init=False)
    name: str | None = field(_TEXT, "The name; default: a generated one.", default=None)
    display_name: str | None = field(
        _TEXT, "The name that lists show; several jobs may share it.", default=None
    )
    experiment_name: str | None = field(
        _TEXT, "The experiment, a group of jobs; default: the name of the folder.", default=None
    )
    description: str | None = field(_TEXT, "A text of your own.", default=None)
    tags: OrEmpty[dict[str, str]] = field(
        MapOf(Text(nullable=True)), "Names and values of your own.", factory=dict
    )
    properties: OrEmpty[dict[str, str]] = field(
        MapOf(Text(nullable=True)), "Names and values that programs set.", factory=dict
    )
    compute: str | None = field(
        _TEXT,
        "The compute that runs the job: azureml:NAME, or local for this machine.",
        default=None,
        last=True,
    )
    identity: Any = field(
        IDENTITY, "The identity that Azure would use; not used here.", default=None, last=True
    )
    services: MadeOf[Services | None] = field(
        SERVICES,
        "Interactive services that run beside the job, such as TensorBoard.",
        default=None,
        last=True,
    )
    parent_job_name: str | None = field(_TEXT, "The job that this one is part of.", default=None, last=True)

    def _settle_arguments(self, others: dict[str, Any]) -> None:
        super()._settle_arguments({"_base_path": others.pop("_base_path", None)})
        refuse_unknown([name for name in others if name not in _KEPT], (*self._fields, *_FLAT))
        self.id: str | None = None
        self.status: str | None = None
        self.studio_url: str | None = None
        self.log_files: dict[str, str] | None = None
        self.creation_context: Any = None
        self._source = ""
        self._warnings: list[str] = []
        self._node_name: str = ""
        """Within a pipeline."""
        self._comment: str | None = None
        self._declared: dict[str, Any] = {}
        """The inputs of the component that it was made from, as ``steps.fill_component`` left them."""
        self._defaults: dict[str, Any] = {}
        """Of those inputs, what each is when nobody gives it."""
        self._component_name = ""
        self._includes: list[str] = []
        """Absolute paths that belong to its code besides ``code``."""
        self._is_deterministic = bool(others.get("is_deterministic", True))
        self._snapshots: dict[str, str] = {}
        """Its code as it was taken before, by place: of a step of a pipeline, or a trial of a sweep."""
        self._top_job = ""
        """The job that it is part of in the end, such as the outermost pipeline; empty: it is that itself."""
        self._stored_as = ""
        """The name under which it was submitted or fetched; empty: neither."""
        self._stored_spec: dict[str, Any] | None = None
        """What was submitted; of a fetched job None, for the store has it."""
        self._root: Mapping | None = None
        """The job file as read, so that later problems still name its lines."""
        self._page: Callable[[], str | None] | None = None
        """Of a stored job: returns its page for a notebook, None if the job is gone."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Job:
        from copy import deepcopy

        copied = type(self).__new__(type(self))
        for name, value in self.__dict__.items():
            object.__setattr__(copied, name, value if name == "_root" else deepcopy(value, memo))
        return copied

    def dump(self, dest: Any, **kwargs: Any) -> None:
        """
        Write the job as YAML that loads back to the same job.

        dest: a path, which must not exist unless ``overwrite=True``, or an open file.
        """
        write(self, dest, overwrite=bool(kwargs.get("overwrite", True)))

    def _settle(self, values: dict[str, Any], *, absolute: bool) -> None:
        """Write the parts of ``values``, the job as plain data, that depend on where the file is to lie."""
        settle(values, self, absolute=absolute)

    def _repr_html_(self) -> str | None:
        """Return what a notebook shows of a stored job; None for any other, which it shows as text."""
        return self._page() if self._page is not None and self.name == self._stored_as else None

    def __str__(self) -> str:
        return hide_passwords(to_yaml(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(name={self.name!r})"


def to_dict(job: Job, *, absolute: bool = False) -> dict[str, Any]:
    """
    Return the job as a mapping that JSON can hold, without what is not set.

    absolute: write local paths in full, for a file that is to lie elsewhere.
    """
    values = plain(job)
    assert isinstance(values, dict)
    if job._comment:
        values["comment"] = job._comment
    component = values.get("component")
    if absolute and isinstance(component, str) and not component.startswith("azureml:"):
        values["component"] = resolve(job, component)
    job._settle(values, absolute=absolute)
    return values


def settle(values: dict[str, Any], owner: Any, *, absolute: bool) -> None:
    """Write the environment and paths of a job, or of the trial of one, as a file has them."""
    settle_environment(values, getattr(owner, "environment", None), owner, absolute=absolute)
    if not absolute:
        return
    code = values.get("code")
    if isinstance(code, str) and not is_remote(code):
        values["code"] = resolve(owner, code)
    for group in ("inputs", "outputs"):
        for item in (values.get(group) or {}).values():
            path = item.get("path") if isinstance(item, dict) else None
            if isinstance(path, str) and not PATTERN.search(path):
                item["path"] = resolve(owner, path)


def to_yaml(job: Job, *, absolute: bool = False) -> str:
    """Return the job as YAML that loads back to the same job; ``absolute`` as of ``to_dict``."""
    return write_yaml(to_dict(job, absolute=absolute))


def write(job: Job, dest: str | os.PathLike[str] | IO[str], *, overwrite: bool = True) -> None:
    """
    Write the job as YAML; local paths in full when the file lies in another folder than the
    job's.
    """
    if not isinstance(dest, (str, os.PathLike)):
        dest.write(to_yaml(job))
        return
    folder = os.path.dirname(os.path.abspath(dest))
    text = to_yaml(job, absolute=folder != job.base_path)
    with open(dest, "w" if overwrite else "x", encoding="utf-8") as file:
        file.write(text)
