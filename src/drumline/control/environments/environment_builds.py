"""
The build that the environment of a job needs, and the Python that its ranks run with.

Nothing is built here, and nothing fetched: the digest is that of what the job asks for.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import sys
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import NodeError, PlanError, SpecError, UsageError
from drumline.contract.folder import base_home
from drumline.contract.plan import Build
from drumline.contract.record import ABSENT, Absent, NamedTuple
from drumline.control.environments.recipes import Recipe, fits, recipe_of
from drumline.control.times import utc
from drumline.linux.pyenv_shims import find_on_path, resolve_interpreter
from drumline.spec.parts.environment import Environment
from drumline.spec.paths import resolve
from drumline.spec.reading.files import read_yaml
from drumline.spec.reading.source import find, plain, problem_at, wrap

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drumline.spec.reading.source import Node


# interpreters of this machine


def behind(python: str) -> str:
    """Look through a shim, such as pyenv's: it would find another Python in another folder. Raises UsageError."""
    try:
        return resolve_interpreter(python, os.environ)
    except OSError as error:
        raise UsageError(str(error.strerror), "name the interpreter itself") from error


def find_active(environ: Mapping[str, str]) -> str:
    """
    Return the Python that is active in the shell of whoever submits, never our own; empty for none.

    It is that of VIRTUAL_ENV or CONDA_PREFIX, else the first ``python`` of PATH, else the first ``python3``.
    """
    own = os.path.realpath(sys.prefix)
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        python = os.path.join(environ.get(name, ""), "bin", "python")
        if environ.get(name) and os.path.realpath(environ[name]) != own and os.access(python, os.X_OK):
            return behind(os.path.abspath(python))
    folders = [one for one in environ.get("PATH", "").split(os.pathsep) if os.path.isabs(one)]
    others = os.pathsep.join(one for one in folders if os.path.realpath(one) != os.path.join(own, "bin"))
    return find_on_path("python", environ, others) or find_on_path("python3", environ, others)


def find_named(named: str) -> str:
    """
    Return the Python that ``--python`` names: a path, a virtual environment, or a program of PATH. Raises UsageError.

    An absolute path that is not there may be one of a compute's nodes.
    """
    path = os.path.expanduser(named)
    is_program = os.sep not in path and not os.path.exists(os.path.join(path, "bin", "python"))
    if is_program:
        path = find_on_path(path, os.environ) or shutil.which(path) or ""
    elif os.path.isdir(path):
        path = os.path.join(path, "bin", "python")
    path = os.path.abspath(path) if path and (os.path.exists(path) or os.path.isabs(path)) else ""
    if not path or os.path.isdir(path):
        raise UsageError(
            f"--python: there is no {named!r}", "give the path of a Python, or of a virtual environment"
        )
    return path


def is_program(path: str) -> bool:
    """Return whether this machine can run the file."""
    return os.path.isfile(path) and os.access(path, os.X_OK)


VARIABLE = "DRUMLINE_ENVIRONMENT"
CURRENT = "current"
"""The only word that ``drumline.environment`` and the variable take: the Python at hand, whatever the job says."""

_FORMAT = 1
"""Of what is in a digest."""

AT_HAND = f"drumline: {{environment: {CURRENT}}} in the job, or {VARIABLE}={CURRENT}, runs it with the Python at hand"


class TargetMachine(NamedTuple):
    """The machine that a job runs on, as far as its environment is concerned."""

    interpreter: str
    """What runs it where no environment says so."""

    is_local: bool = True
    compute: Mapping[str, Any] = {}

    @property
    def root(self) -> str:
        """Return the home whose environments all of its workspaces share."""
        return str(self.compute.get("folder") or "") or base_home()


class EnvironmentPlan(NamedTuple):
    build: Build | None = None
    warnings: tuple[str, ...] = ()
    variables: Mapping[str, str] = {}
    """``variables`` of the conda file."""


def is_current(settings: Mapping[str, Any], environ: Mapping[str, str]) -> bool:
    """Return whether the job runs with the current Python. Raises UsageError for an unknown value of the variable."""
    said = environ.get(VARIABLE, "")
    if said not in ("", CURRENT):
        raise UsageError(f"{VARIABLE} is {said!r}, and can be {CURRENT!r} alone", f"unset {VARIABLE}")
    return bool(said) or str(settings.get("environment") or "").lower() == CURRENT


def plan_environment(
    given: Environment, machine: TargetMachine, path: str = "environment", written: Node | None = None
) -> EnvironmentPlan:
    """
    Plan an environment that has no ``python`` of its own.

    ``path``: of the job's field, for what is said about it. ``written``: as its file has it, where there is one. Raises
    PlanError, with file and line of what cannot be built.
    """
    recipe = _read_recipe(given, path, written)
    contained = _plan_image(given, machine, recipe)
    if contained is not None:
        return contained._replace(variables=recipe.variables if recipe else {})
    warnings = _describe_unused(given, machine, is_built=recipe is not None)
    if recipe is None:
        return EnvironmentPlan(None, warnings)
    kind = "conda" if recipe.of_conda else "uv"
    steps = (_for_conda if kind == "conda" else _for_uv)(recipe, machine)
    digest = _digest(kind, recipe, machine)
    from drumline.staging.environments.environment_folder import prefix_of

    built = Build(kind, digest, prefix_of(machine.root, digest), steps, _name(given))
    return EnvironmentPlan(built, warnings, recipe.variables)


def _read_recipe(given: Environment, path: str, written: Node | None) -> Recipe | None:
    """Read the conda file of an environment; None without one. Raises SpecError, PlanError."""
    if given.conda_file is None:
        return None
    root: Node
    if isinstance(given.conda_file, str):
        full = resolve(given, given.conda_file)
        root, folder = read_yaml(full), os.path.dirname(full)
    else:
        node = find(written, "conda_file") if written is not None else None
        # One that was changed in Python has no positions.
        root = node if node is not None and plain(node) == given.conda_file else wrap(given.conda_file)
        folder = given.base_path
    recipe, problems = recipe_of(root, folder, f"{path}.conda_file")
    if problems:
        raise PlanError(problems)
    return recipe


def _name(given: Environment) -> str:
    if not given.name:
        return ""
    return f"{given.name}:{given.version}" if given.version else str(given.name)


# for containers


def _plan_image(given: Environment, machine: TargetMachine, recipe: Recipe | None) -> EnvironmentPlan | None:
    """Plan an environment in a container; None if the machine cannot run those. Raises PlanError."""
    if not given.image and not given.build:
        return None
    from drumline.staging.environments import containers

    if not containers.find_engine(machine.compute):
        return None
    context, conda = str(getattr(given.build, "path", None) or ""), None
    if recipe is not None:
        packages: list[Any] = [package.text for package in recipe.packages]
        conda = {
            "channels": list(recipe.channels),
            "dependencies": [*packages, {"pip": list(recipe.requirements)}]
            if recipe.requirements
            else packages,
            "constraints": list(recipe.constraints),
            "files": dict(recipe.files),
        }
    wanted = {
        "image": str(given.image or ""),
        "context": resolve(given, context) if context else "",
        "dockerfile": str(getattr(given.build, "dockerfile_path", None) or ""),
        "conda": conda,
    }
    made = containers.plan_image_build(
        wanted,
        compute=machine.compute,
        root=machine.root,
        name=_name(given),
    )
    return None if made is None else EnvironmentPlan(made)


def _describe_unused(given: Environment, machine: TargetMachine, *, is_built: bool) -> tuple[str, ...]:
    what = f"image: {given.image}" if given.image else "build: its Dockerfile" if given.build else ""
    if not what:
        return ()
    from drumline.staging.environments import containers

    field, _, which = what.partition(": ")
    why = containers.explain_no_engine(machine.compute) or "there is no podman, docker or apptainer here"
    after = f"the command runs with {machine.interpreter} first on its PATH"
    after = "its conda_file is built" if is_built else after
    return (f"environment.{field}: {which} is not used, for {why}; {after}",)


# for uv and conda


def _for_uv(recipe: Recipe, machine: TargetMachine) -> dict[str, Any]:
    base, version = _at_hand(machine)
    fitting = base if (version and fits(version, recipe.python)) or not recipe.python else ""
    return {
        "python": recipe.python,
        "base": fitting,
        "requirements": list(recipe.of_pip),
        "constraints": list(recipe.constraints),
    }


def _for_conda(recipe: Recipe, machine: TargetMachine) -> dict[str, Any]:
    from drumline.staging.environments import conda

    tool = conda.find_conda(os.environ) if machine.is_local else ""
    if machine.is_local and not tool:
        first = recipe.of_conda[0]
        what = f"{first.path}: {first.text!r} is a package of conda, and there is no micromamba, mamba or conda here"
        raise PlanError([problem_at(first.node, what, path=first.path, hint=f"{conda.HINT}; {AT_HAND}")])
    packages = [one.text for one in recipe.packages]
    names = {one.name for one in recipe.packages}
    _, version = _at_hand(machine)
    if "python" not in names and recipe.requirements:
        packages.insert(0, f"python={version[0]}.{version[1]}" if version else "python")
    if "pip" not in names and recipe.requirements:
        packages.append("pip")
    return {
        "channels": list(recipe.channels),
        "packages": packages,
        "requirements": list(recipe.requirements),
        "constraints": list(recipe.constraints),
        "tool": tool,
    }


def _at_hand(machine: TargetMachine) -> tuple[str, tuple[int, ...]]:
    """Return the base Python of this process, or the compute's, and its version if that is known."""
    if os.path.realpath(machine.interpreter) == os.path.realpath(sys.executable):
        return os.path.realpath(sys.executable), tuple(sys.version_info[:3])
    return machine.interpreter, ()


def _digest(kind: str, recipe: Recipe, machine: TargetMachine) -> str:
    """Return a digest of what is to be built, whatever the order of its parts."""
    base, version = _at_hand(machine)
    system = os.uname()
    lines = recipe.of_pip
    content = {
        "format": _FORMAT,
        "kind": kind,
        "python": recipe.python or ".".join(map(str, version)) or base,
        "options": [line for line in lines if line.startswith("-")],
        "requirements": sorted(line for line in lines if not line.startswith("-")),
        "constraints": sorted(recipe.constraints),
        "files": recipe.files,
        "packages": sorted(one.text.replace(" ", "") for one in recipe.packages) if kind == "conda" else [],
        "channels": list(recipe.channels) if kind == "conda" else [],
        "platform": [system.sysname, system.machine],
    }
    text = json.dumps(content, sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:32]


# environments that are built without a job


_END_S = 5.0


def in_file(path: str) -> Environment:
    """Load an environment from its file, or from a conda file. Raises SpecError."""
    from drumline.spec.load import load_environment

    root = read_yaml(path)
    if {"channels", "dependencies"} & root.entries.keys():
        return Environment(conda_file=os.path.abspath(path), base_path=os.path.dirname(os.path.abspath(path)))
    return load_environment(path)


class BuiltEnvironment(NamedTuple):
    """An environment that was built, or was there. ``python``: absent where it is in an image."""

    kind: str
    digest: str
    prefix: str
    python: str | Absent
    seconds: float
    reused: bool


def build(environment: Environment, log: int, *, is_forced: bool = False) -> BuiltEnvironment:
    """
    Make it unless it is there. Blocks. ``log``: a descriptor for what the tools say.

    Raises PlanError, UsageError where there is nothing to build, NodeError where it cannot be built.
    """
    from drumline.staging.environments.environment_folder import interpreter_of

    if environment.python:
        raise UsageError(f"there is nothing to build: it is the Python {environment.python}")
    wanted = plan_environment(environment, TargetMachine(sys.executable))
    if wanted.build is None:
        why = "; ".join(wanted.warnings) or "it names no packages"
        raise UsageError(f"there is nothing to build: {why}", "an environment with a conda_file")
    message = _run_builder(wanted.build, log, is_forced=is_forced)
    if message.get("type") != "ready":
        what = str(message.get("message") or "the environment was not built")
        raise NodeError(what, str(message.get("hint") or ""))
    made, python = wanted.build, interpreter_of(wanted.build) or ABSENT
    return BuiltEnvironment(
        made.kind, made.digest, made.prefix, python, message["seconds"], message["reused"]
    )


def _run_builder(wanted: Build, log: int, *, is_forced: bool) -> dict[str, Any]:
    """Build in a process of its own, which ends with all that it has started; return its last message."""
    import subprocess

    argv = [sys.executable, "-P", "-m", "drumline.staging.environments", "--stdin"]
    argv += ["--force"] if is_forced else []
    process = subprocess.Popen(  # noqa: S603 - our own module
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True
    )
    try:
        output = process.communicate(json.dumps(wanted._asdict()).encode())[0]
    except BaseException:
        process.terminate()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
        raise
    lines = output.splitlines()
    try:
        message = json.loads(lines[-1]) if lines else {}
    except ValueError:
        message = {}
    return message if isinstance(message, dict) else {}


def state_of(environment: Environment) -> dict[str, Any]:
    """Describe whether an environment is built, where, when, and its size; empty for one that needs no building."""
    from drumline.staging.environments.environment_builder import is_ready
    from drumline.staging.environments.environment_folder import MARKER

    if environment.python:
        return {}
    try:
        wanted = plan_environment(environment, TargetMachine(sys.executable)).build
    except SpecError as error:
        return {"is_ready": False, "reason": error.message}
    if wanted is None:
        return {}
    state: dict[str, Any] = {"is_ready": is_ready(wanted), "kind": wanted.kind, "prefix": wanted.prefix}
    if not state["is_ready"]:
        return state
    marker = os.path.join(wanted.prefix, MARKER)
    try:
        with open(marker, encoding="utf-8") as file:
            made = json.load(file)
        state["made"] = utc(float(made["made"]), "seconds")
        state["seconds"] = made["seconds"]
        state["last_used"] = utc(os.stat(marker).st_mtime, "seconds")
    except (OSError, ValueError, KeyError, TypeError):
        pass  # Somebody has changed it by hand; it is there all the same.
    # On the disk, with files that a cache shares by hard links.
    size = 0
    for folder, _, names in os.walk(wanted.prefix):
        for name in names:
            with contextlib.suppress(OSError):
                size += os.lstat(os.path.join(folder, name)).st_blocks * 512
    return {**state, "size_mb": round(size / (1 << 20), 1)}
