"""
The names in a job become paths of this machine: assets, datastores, outputs of earlier jobs, environments.

The job as it was written stays as it is; what is planned is a copy.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, suppress
from copy import copy
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import DrumlineError, NotFoundError, PlanError, Problem, SpecError, UsageError
from drumline.contract.folder import home
from drumline.contract.plan import Registration
from drumline.contract.record import NamedTuple
from drumline.control.assets import datastore_verbs
from drumline.control.environments import environment_builds
from drumline.control.jobs import job_outputs
from drumline.plan import bound_values
from drumline.plan.request import settings_of
from drumline.spec import paths
from drumline.spec.azureml_uris import (
    AssetReference,
    InDatastore,
    JobOutputReference,
    RunFile,
    is_reference,
    parse,
)
from drumline.spec.parts.environment import Environment
from drumline.spec.reading.source import find
from drumline.store.asset_versions import Records, check_name, check_version

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from drumline.contract.folder import RunFolder
    from drumline.contract.plan import Build, Plan
    from drumline.control.environments.environment_builds import TargetMachine
    from drumline.spec.azureml_uris import Reference
    from drumline.spec.jobs.command import Command


_MODELS = ("custom_model", "mlflow_model", "triton_model")
DEPTH = 8
"""Of assets whose paths are references themselves."""

_NAME = "${{name}}"
_MACROS = {"${{default_datastore}}": "workspaceblobstore"}
_NO_NAME = "NAME"
"""In a path, of a job that has none yet."""


class ResolvedJob(NamedTuple):
    job: Command
    warnings: tuple[str, ...] = ()
    interpreter: str = ""
    """The Python of the job's environment; empty: that of the compute, else the one that submits."""

    found: Mapping[str, str] = {}
    """As ``Plan.resolved``."""

    kept: Mapping[str, bound_values.Kept] = {}
    """Of inputs and outputs in datastores that are not of this machine: as of ``bound_values.Values``."""

    written: Mapping[str, str] = {}
    """What an output in such a datastore is called: ``azureml://datastores/blob/paths/model``."""

    build: Build | None = None
    """What is made before the ranks start; ``interpreter`` is in it."""

    variables: Mapping[str, str] = {}
    """That the environment sets."""


def resolve_references(
    job: Command,
    interpreter: str = sys.executable,
    *,
    is_local: bool = True,
    compute: Mapping[str, Any] | None = None,
) -> ResolvedJob:
    """
    Replace the references of a job by what they lead to.

    ``interpreter``: the Python where the job's environment names none. ``is_local``: whether on this machine.
    ``compute``: the settings of the one that it runs on.

    Raises PlanError with every reference that leads nowhere.
    """
    work = _ReferenceResolver(job)
    made = copy(job)
    if any(_reference_of(one) for one in (job.inputs or {}).values()):
        made.inputs = {name: work.input(name, given) for name, given in job.inputs.items()}
    if any(getattr(one, "path", None) for one in (job.outputs or {}).values()):
        made.outputs = {name: work.output(name, given) for name, given in job.outputs.items()}
    with work.field("environment"):
        if work.environment(interpreter, is_local=is_local, compute=compute or {}):
            made.environment = None
    if work.problems:
        raise PlanError(work.problems)
    return ResolvedJob(
        made,
        tuple(work.warnings),
        work.interpreter,
        work.found,
        work.kept,
        work.written,
        work.build,
        work.variables,
    )


def _reference_of(given: Any) -> str:
    """Return the reference that is the path of an input or output; empty for none."""
    path = getattr(given, "path", None)
    return path if isinstance(path, str) and is_reference(path) else ""


class _ReferenceResolver:
    """One job, and what was found out about it so far."""

    def __init__(self, job: Command) -> None:
        self.job = job
        self.problems: list[Problem] = []
        self.warnings: list[str] = []
        self.found: dict[str, str] = {}
        self.kept: dict[str, bound_values.Kept] = {}
        self.written: dict[str, str] = {}
        self.interpreter = ""
        self.build: Build | None = None
        self.variables: Mapping[str, str] = {}

    @contextmanager
    def field(self, name: str, path: str = "") -> Iterator[None]:
        """Record an error from within as a problem of that field."""
        try:
            yield
        except DrumlineError as error:
            found = getattr(error, "problems", ())
            told = "; ".join(": ".join(filter(None, (one.where, one.what))) for one in found) or error.message
            hint = error.hint or next((one.hint for one in found), "")
            self.problems.append(Problem(f"{name}: {told}", path=path or name, hint=hint))

    # data

    def input(self, name: str, given: Any) -> Any:
        text = _reference_of(given)
        if not text:
            return given
        made = copy(given)
        where = f"inputs.{name}"
        with self.field(where, f"{where}.path"):
            wanted = str(given.type or "").lower()
            place, kind = self._follow(parse(text), text, where, wanted)
            made.path = self.found[f"{where}.path"] = place
            if kind:
                made.type = self._type(name, wanted, kind, text)
        return made

    def _follow(self, reference: Reference, text: str, where: str, wanted: str) -> tuple[str, str]:
        """Follow a reference to a local path or an address, and return the type of its asset, if it is one."""
        kind = ""
        for _ in range(DEPTH):
            if not isinstance(reference, AssetReference):
                return self._use_place(find_place(reference), where), kind
            asset = find_asset(_name_noun(wanted), reference, text)
            if isinstance(asset, job_outputs.OutputPlace):
                return self._use_place(asset, where), kind
            kind = kind or str(asset.type or "").lower()
            self.found.setdefault(f"{where}.asset", f"azureml:{asset.name}:{asset.version}")
            path = str(asset.path)
            if not is_reference(path):
                return paths.resolve(asset, path), kind
            reference = parse(path)
        raise UsageError(f"{text!r} leads in a circle")

    def _use_place(self, place: job_outputs.OutputPlace, where: str) -> str:
        if place.warning:
            self.warnings.append(f"{where}: {place.warning}")
        if place.datastore:
            self.kept[where] = bound_values.Kept(place.datastore, place.home)
        return place.path

    def _type(self, name: str, wanted: str, kind: str, text: str) -> str:
        """Return the type of the asset, unless the job gives another that fits."""
        root = self.job._root
        said = wanted != "uri_folder"  # What Python has where nothing is said.
        if root is not None and find(root, f"inputs.{name}") is not None:
            said = find(root, f"inputs.{name}.type") is not None
        if not said:
            return kind
        if (wanted == "uri_file") != (kind == "uri_file") and kind not in _MODELS:
            raise UsageError(f"{text!r} is of type {kind}, and the input of type {wanted}", f"type: {kind}")
        return wanted

    def output(self, name: str, given: Any) -> Any:
        text = str(getattr(given, "path", None) or "")
        if not paths.is_remote(text) and not _reference_of(given):
            return given
        made = copy(given)
        where = f"outputs.{name}"
        with self.field(where, f"{where}.path"):
            for macro, value in {
                **_MACROS,
                _NAME: self.job.name or _NO_NAME,
                "${{output_name}}": name,
            }.items():
                text = text.replace(macro, value)
            if not is_reference(text):
                made.path = text
                return made
            reference = parse(text)
            if isinstance(reference, JobOutputReference) and reference.output == name and not reference.path:
                made.path = None  # Of a job that was fetched: where the one before wrote.
                return made
            if not isinstance(reference, InDatastore):
                hint = "azureml://datastores/NAME/paths/PATH, a local path, or none"
                raise UsageError(f"nothing can be written to {text!r}", hint)
            place = self._use_place(_find_in_datastore(reference), where)
            made.path = self.found[f"{where}.path"] = place
            self.written[where] = f"azureml://datastores/{reference.datastore}/paths/{reference.path}"
        return made

    # environments

    def environment(self, interpreter: str, *, is_local: bool, compute: Mapping[str, Any]) -> bool:
        """Find out with which Python its ranks run; whether there is nothing left to say of its environment."""

        if environment_builds.is_current(settings_of(self.job), os.environ):
            return True
        given = self.job.environment
        if given is None:
            return False
        if isinstance(given, str) and not given.startswith("file:"):
            reference = parse(given if is_reference(given) else f"azureml:{given}")
            if not isinstance(reference, AssetReference):
                raise UsageError(
                    f"{given!r} is not an environment", "azureml:NAME:VERSION or azureml:NAME@LABEL"
                )
            try:
                given = _find_asset("environment", reference)
            except NotFoundError:
                version = f" --version {reference.version}" if reference.version else ""
                line = f"drumline environment create --name {reference.name}{version} --python PATH"
                what = (
                    f"environment: {str(reference)!r} is not registered; the command runs with {interpreter}"
                )
                self.warnings.append(f"{what} first on its PATH; to have it run with another: {line}")
                return True
            self.found["environment"] = f"azureml:{given.name}:{given.version}"
        python = str(getattr(given, "python", None) or "")
        if python and is_local:
            python = environment_builds.behind(python)
        if python:
            if is_local and not environment_builds.is_program(python):
                raise UsageError(f"its python, {python}, is not there or cannot be run")
            self.interpreter = self.found["environment.python"] = python
            return True
        return self._plan_build(given, environment_builds.TargetMachine(interpreter, is_local, compute))

    def _plan_build(self, given: Any, machine: TargetMachine) -> bool:
        from drumline.staging.environments.environment_folder import interpreter_of

        if not isinstance(given, Environment):
            return False
        root = self.job._root
        written = root.get("environment") if root is not None and given is self.job.environment else None
        try:
            found = environment_builds.plan_environment(given, machine, written=written)
        except SpecError as error:
            for problem in error.problems:
                problem.path = problem.path or "environment.conda_file"
            self.problems += error.problems
            return True
        self.warnings += found.warnings
        self.build, self.variables = found.build, found.variables
        if found.build is not None:
            self.interpreter = interpreter_of(found.build)
            self.found["environment.digest"] = found.build.digest
        return found.build is not None or bool(found.warnings)


def find_place(reference: InDatastore | JobOutputReference | RunFile) -> job_outputs.OutputPlace:
    """Find the path or address of a reference. Raises NotFoundError, UsageError, PlanError."""
    if isinstance(reference, InDatastore):
        return _find_in_datastore(reference)
    if isinstance(reference, JobOutputReference):
        return job_outputs.find_output(reference.job, reference.output, reference.path)
    return job_outputs.find_run_file(reference.job, reference.path)


def find_asset(kind: str, reference: AssetReference, text: str) -> Any:
    """Find an asset, or the output of a job. Raises NotFoundError, UsageError."""
    if reference.registry:
        raise UsageError(
            f"{text!r} is in a registry of Azure's, which is not asked",
            f"drumline {kind} create --name {reference.name} --version {reference.version or 1} --path PATH, and "
            f"azureml:{reference.name}:{reference.version or 1} in the job",
        )
    if not reference.version and not reference.label:
        raise UsageError(
            f"{text!r} names no version", f"azureml:{reference.name}:1 or azureml:{reference.name}@latest"
        )
    try:
        return _find_asset(kind, reference)
    except NotFoundError as error:
        # Azure registers every output of a job as azureml_JOB_output_data_OUTPUT.
        job, between, output = reference.name.removeprefix("azureml_").partition("_output_data_")
        if between and reference.name.startswith("azureml_"):
            return job_outputs.find_output(job, output)
        other = "data" if kind == "model" else "model"
        with suppress(DrumlineError):
            _find_asset(other, reference)
            type_hint = "; give the input its type" if other == "model" else ""
            error.hint = f"there is a {other} of that name{type_hint}"
        raise


def _find_asset(kind: str, reference: AssetReference) -> Any:
    from drumline.control.assets import asset_verbs

    label = reference.label or (None if reference.version else "latest")
    return asset_verbs.get(kind, reference.name, version=reference.version or None, label=label)


def plan_registrations(job: Command, planned: Plan, written: Mapping[str, str]) -> tuple[Registration, ...]:
    """Plan the registration of named outputs. Raises PlanError for a version that exists already."""
    wanted, problems = [], []
    addresses = {one.name: written.get(one.name, one.uri) for one in planned.uploads}
    for name, output in (job.outputs or {}).items():
        asset = str(getattr(output, "name", None) or "")
        if not asset:
            continue
        version = str(getattr(output, "version", None) or "")
        kind = str(output.type or "uri_folder").lower()
        noun = _name_noun(kind)
        where = f"outputs.{name}.version" if version else f"outputs.{name}.name"
        try:
            check_name(asset)
            # Those of the base home do not count.
            if version and check_version(version) in Records(home(), noun).versions(asset):
                problems.append(_describe_taken(name, version, noun, asset))
        except UsageError as error:
            problems.append(Problem(f"{where}: {error.message}", path=where, hint=error.hint))
        path = (
            addresses.get(f"outputs.{name}") or planned.user_env[bound_values.variable_of(f"outputs.{name}")]
        )
        description = str(getattr(output, "description", None) or "")
        wanted.append(Registration(name, noun, asset, version, kind, path, home(), description))
    if problems:
        raise PlanError(problems)
    return tuple(wanted)


def _name_noun(kind: str) -> str:
    return "model" if kind in _MODELS else "data"


def _describe_taken(output: str, version: str, noun: str, asset: str) -> Problem:
    path = f"outputs.{output}.version"
    what = f"{path}: there is version {version!r} of {noun} {asset!r} already"
    return Problem(what, path=path, hint="leave `version` out for the next one")


def _find_in_datastore(reference: InDatastore) -> job_outputs.OutputPlace:
    found = datastore_verbs.find(reference.datastore, reference.path)
    name = reference.datastore if found.home else ""
    return job_outputs.OutputPlace(found.place, datastore=name, home=found.home)


# the named outputs of a pipeline or a sweep


def register_outputs(folder: RunFolder, graph: Mapping[str, Any]) -> None:
    """Register the named outputs. A failure to do so fails no job; ``drumline job show`` says why. Raises OSError."""
    wanted = []
    for name, output in (graph.get("outputs") or {}).items():
        if not isinstance(output, dict) or not output.get("name"):
            continue
        place = os.path.realpath(os.path.join(folder.named_outputs, name))
        kind = str(output.get("type") or "uri_folder").lower()
        if kind in ("uri_file", "uri_folder"):
            # What the step has declared goes before what the pipeline says, or leaves out.
            kind = "uri_file" if os.path.isfile(place) else "uri_folder"
        asset, version = str(output["name"]), str(output.get("version") or "")
        description = str(output.get("description") or "")
        wanted.append(Registration(name, _name_noun(kind), asset, version, kind, place, home(), description))
    from drumline.supervisor.job import preparing

    preparing.register(folder, wanted)


def find_taken_versions(job: Any) -> Iterator[Problem]:
    """Yield a problem for each output of a pipeline whose version exists already."""
    for name, output in job.outputs.items():
        if not output.name or not output.version:
            continue
        noun = _name_noun(str(output.type or "").lower())
        with suppress(DrumlineError):
            _find_asset(noun, AssetReference(output.name, str(output.version)))
            yield _describe_taken(name, output.version, noun, output.name)
