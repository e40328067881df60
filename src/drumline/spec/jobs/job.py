"""The common base of all jobs, of those that may call a component, and of what has a program for its ranks."""

from __future__ import annotations

import os
from copy import deepcopy

from drumline.contract.errors import SpecError, hide_passwords
from drumline.spec import builder
from drumline.spec.entity import Attributes, fill, plain, write_yaml
from drumline.spec.hints import add_place, refuse_unknown
from drumline.spec.kinds.fields import Any, Declared, Located, MadeOf, OrEmpty, field
from drumline.spec.kinds.locations import Code
from drumline.spec.kinds.records import MapInto, Record, list_kinds
from drumline.spec.kinds.values import (
    Anything,
    Flag,
    Integer,
    ListOf,
    MapOf,
    OneOf,
    Seconds,
    Switch,
    Text,
    VersionText,
    refuse_wrong,
)
from drumline.spec.parts.environment import EnvironmentKind, settle_environment
from drumline.spec.parts.io import INPUTS, OUTPUTS, PATTERN, Inputs, Outputs
from drumline.spec.parts.resources import (
    DISTRIBUTION,
    IDENTITY,
    PYTHON_RESOURCES,
    QUEUE_SETTINGS,
    CommandJobLimits,
    JobResourceConfiguration,
    QueueSettings,
)
from drumline.spec.parts.services import SERVICES, Services
from drumline.spec.paths import is_remote, resolve

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import IO, Self

    from drumline.spec.reading.source import Mapping


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


class Tags(Attributes):
    """Tags or properties. In Python the values may be anything, as azure-ai-ml takes them; those of a file are text."""

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, value if value is None else str(value))

    def update(self, *values: Any, **named: Any) -> None:
        for name, value in dict(*values, **named).items():
            self[name] = value


TAGS = MapInto(Text(nullable=True), Tags)


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
    tags: OrEmpty[dict[str, str]] = field(TAGS, "Names and values of your own.", factory=Tags)
    properties: OrEmpty[dict[str, str]] = field(TAGS, "Names and values that programs set.", factory=Tags)
    inputs: MadeOf[Inputs] = field(INPUTS, factory=Inputs, last=True)
    outputs: MadeOf[Outputs] = field(OUTPUTS, factory=Outputs, last=True)
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

    def _set_given(self, attribute: str, make: Any, given: dict[str, Any]) -> None:
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

    def __deepcopy__(self, memo: dict[int, Any]) -> Job:
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


class Calling(Job):
    _adopted: tuple[str, ...] = ()
    """Fields that it takes from its component where it has none itself: scripts change them of a node."""

    _input_example = ""
    """How its inputs are given in a call."""

    def _settle_arguments(self, others: dict[str, Any]) -> None:
        """End the constructor: take what the component has, and join the pipeline that is being built."""
        super()._settle_arguments(others)
        self._is_pattern = self.called_component is None
        """Whether, within a pipeline, it is a node only as long as it is not called."""
        self._replaced: dict[str, Any] = {}
        """Inputs as they were before the call that it comes from gave others."""
        component = self.called_component
        if hasattr(component, "outputs"):
            for name in self._adopted:
                if getattr(self, name) is None:
                    setattr(self, name, deepcopy(getattr(component, name)))
            for name, output in component.outputs.items():
                if name not in self.outputs:
                    self.outputs[name] = deepcopy(output)
        builder.register(self)

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


DRUMLINE = Record(
    "drumline",
    {
        "grace": field(Seconds(), "Seconds between SIGTERM and SIGKILL; default 30."),
        "hang_after": field(
            Seconds(),
            "Seconds without progress of any rank after which a hang is reported; default 300, 0: never.",
        ),
        "hang_action": field(
            OneOf("report", "end", "restart"), "What to do when the job hangs; default report."
        ),
        "max_restarts": field(Integer(), "How often to start all ranks again after one fails; default 0."),
        "restart_on": field(
            ListOf(VersionText()), "The failures after which to restart: failure, node, hang, or exit codes."
        ),
        "once": field(
            Flag(), "Run the command on node 0 alone: it is a launcher that reaches the other nodes by ssh."
        ),
        "mpi": field(
            OneOf("launcher", "environment"), "launcher: mpirun starts the ranks; environment: Drumline does."
        ),
        "mount": field(
            OneOf("auto", "always", "never"), "Whether remote inputs are mounted instead of downloaded."
        ),
        "warm": field(Switch("auto"), "Whether ranks are forked from a warm interpreter."),
        "preflight": field(
            Switch("auto", "only"),
            "Whether nodes are checked before the ranks start: auto, on or off; only: no rank starts.",
        ),
        "steps": field(Switch("auto"), "Whether the steps of training loops are followed: auto, on or off."),
        "chief": field(Flag(), "Whether TensorFlow has a chief."),
        "evaluator": field(Flag(), "Whether TensorFlow has an evaluator."),
        "environment": field(
            OneOf("current"), "current: ignore the environment, and run with the Python that submits."
        ),
        "secrets": ListOf(_TEXT),
        "notify": ListOf(Anything()),
        "lint": Record("lint", {"ignore": field(ListOf(_TEXT), "The rules that are not applied, by id.")}),
    },
)

add_place("drumline", DRUMLINE.fields)


VARIABLES = MapOf(Anything())


class RankProgram(Declared):
    """Setting a part such as ``distribution``, ``resources`` or ``environment`` to a dictionary makes the object."""

    command: str | None = field(_TEXT, "The shell command that every rank runs.", default=None)
    code: Any = field(
        Code(),
        "The folder that is copied to the job, and is its working folder; relative to this file.",
        default=None,
    )
    environment: Any = field(
        EnvironmentKind(),
        "The packages or the image of the job; default: the Python that submits it.",
        default=None,
    )
    distribution: Any = field(
        DISTRIBUTION,
        "How the processes of the job find each other; without it, one process on each node.",
        default=None,
    )
    resources: Any = field(PYTHON_RESOURCES, "The number of nodes and what each of them has.", default=None)
    queue_settings: Any = field(QUEUE_SETTINGS, "The priority of the job.", default=None)
