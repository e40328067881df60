"""Fields of a job that this version does not act upon, each told by a warning; and services beside its ranks."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import PlanError
from drumline.contract.plan import Service
from drumline.contract.record import compile_late
from drumline.spec import placeholders
from drumline.spec.hints import unknown_attributes
from drumline.spec.parts.services import asked_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from drumline.contract.folder import RunFolder
    from drumline.spec.jobs.command import Command
    from drumline.spec.parts.services import JobService


LOCAL_COMPUTES = (None, "", "local")


_UNUSED_HERE = {
    "resources.instance_type": "nodes are this machine's",
    "resources.shm_size": "shared memory is this machine's",
    "resources.docker_args": "there is no container",
    "resources.locations": "nodes are on this machine",
    "resources.max_instance_count": "the number of nodes does not change",
    "resources.properties": "nothing here reads them",
    "queue_settings.job_tier": "jobs run in the order of their submission",
    "queue_settings.priority": "jobs run in the order of their submission",
}
_UNUSED_ON_CLUSTERS = {
    "resources.shm_size": "there is no container; shared memory is the node's",
    "resources.docker_args": "there is no container",
    "resources.locations": "nodes are where the compute is",
    "resources.max_instance_count": "the number of nodes does not change",
}
"""What an engine does not see of a job; what it sees it honours, or refuses."""


def list_warnings(
    job: Command, interpreter: str, engine: str = "local", *, is_attached: bool = False
) -> list[str]:
    """
    List a warning for each field without its effect: ``field: what happens instead``.

    ``engine``: where it is to run. ``is_attached``: whether its compute is one that is attached.
    """
    is_local = engine == "local"
    return [
        *unknown_attributes(job),
        *_of_environment(job.environment, interpreter),
        *(() if engine == "kubernetes" else _of_installs(str(job.command or ""), interpreter)),
        *(_of_compute(job.compute) if is_local and not is_attached else ()),
        *_of_sections(job, _UNUSED_HERE if is_local else _UNUSED_ON_CLUSTERS),
        *(() if is_local else _of_properties(job, engine)),
        *_of_services(job),
        *_of_data(job),
    ]


def list_shared_warnings(job: Any) -> list[str]:
    """
    List warnings of a pipeline or a sweep itself, as ``list_warnings``; its steps and trials are asked by themselves.
    """
    said = [*unknown_attributes(job), *_of_services(job)]
    if getattr(getattr(job, "settings", None), "default_datastore", None):
        said.append("settings.default_datastore: not used; outputs stay in the run folders of the steps")
    return said


def _of_environment(environment: Any, interpreter: str) -> Iterator[str]:
    if environment is None:
        return
    what = environment if isinstance(environment, str) else "an environment of its own"
    yield f"environment: {what} is not built; the command runs with {interpreter} first on its PATH"


_INSTALL = compile_late(
    r"""(?:^|[\n;&|(`{]|-\w*c\s*["'])\s*"""
    r"""(?:(?=\w+=|-|["']?\$|\S*python|(?:sudo|command|exec|env|time|nohup|xargs|if|then|else|do|!|uv)\s)\S+\s+)*"""
    r"(?:\S*/)?(?P<words>"
    r"pip[\d.]*\s+install\b(?![^\n;&|]*\s(?:--target|-t|--root|--prefix|--dry-run)\b)"
    r"|(?:conda|mamba|micromamba)\s+(?:env\s+update|install)\b(?![^\n;&|]*\s(?:--name|--prefix|-n|-p)\b))"
)
"""A command, behind words that start another one. The words before it are looked at once each: no ambiguity is slow."""

_OWN_PYTHON = compile_late(r"\bactivate\b|-m\s+venv\b|\bvirtualenv\b|\buv\s+venv\b")


def _of_installs(command: str, interpreter: str) -> Iterator[str]:
    if "install" in command or "update" in command:
        found = _INSTALL.search(command.replace("\\\n", " "))
        if found and not _OWN_PYTHON.search(command):
            yield (
                f"command: an installation ({' '.join(found['words'].split())}) changes {interpreter} for all jobs; "
                "list the packages in the job's environment, or keep them with the job: "
                "`pip install --target packages ...` and PYTHONPATH=packages"
            )


def _of_compute(compute: str | None) -> Iterator[str]:
    name = (compute or "").removeprefix("azureml:")
    if name not in LOCAL_COMPUTES and name.lower() != "serverless":
        yield f"compute: {name!r} is not attached; the job runs on this machine"


def _of_sections(job: Command, unused: Mapping[str, str]) -> Iterator[str]:
    for field, instead in unused.items():
        section, _, name = field.partition(".")
        if getattr(getattr(job, section), name, None):
            yield f"{field}: not used; {instead}"


def _of_properties(job: Command, engine: str) -> Iterator[str]:
    for key in getattr(job.resources, "properties", None) or {}:
        if key != engine:
            yield f"resources.properties.{key}: not used; options of this compute stand under {engine!r}"


def _of_services(job: Command) -> Iterator[str]:
    others = [
        str(name) for name, service in asked_for(job.services).items() if kind_of(service) != TENSORBOARD
    ]
    if others:
        names = ", ".join(others)
        yield f"services: {names} not started; what the job itself listens on is reached on this machine"
    if job.identity:
        yield "identity: not used; the job runs as you"


def _of_data(job: Command) -> Iterator[str]:
    for name, given in (job.inputs or {}).items():
        for field in ("path_on_compute", "datastore"):
            if getattr(given, field, None):
                yield f"inputs.{name}.{field}: not used; local data is reached where it is"
        yield from _of_address(f"inputs.{name}.path", given)
    for name, output in (job.outputs or {}).items():
        yield from _of_address(f"outputs.{name}.path", output)


def _of_address(field: str, given: Any) -> Iterator[str]:
    text = str(getattr(given, "path", None) or "")
    if "://" not in text:
        return
    from drumline.contract.hiding import has_secret

    if has_secret(text):
        yield f"{field}: the address holds a secret, which is kept with the job; a datastore would keep it apart"


TENSORBOARD = "tensor_board"
_LAST_PORT = 65535


def plan_services(
    job: Command, folder: RunFolder, known: Mapping[str, str], cwd: str, interpreter: str
) -> tuple[Service, ...]:
    """
    Return the services that are started: TensorBoard. Raises PlanError for a bad placeholder or port.

    ``known``: what ``outputs.x`` stands for; ``cwd``: the ranks' working folder, which a relative ``log_dir`` is in.
    """
    found = []
    for name, service in asked_for(job.services).items():
        if kind_of(service) != TENSORBOARD:
            continue
        given = getattr(service, "log_dir", None) or (service.properties or {}).get("logDir") or ""
        shown = placeholders.expand(str(given), dict(known), where=f"services.{name}.log_dir")
        place = os.path.normpath(os.path.join(cwd, os.path.expanduser(shown))) if shown else folder.outputs
        found.append(Service(str(name), TENSORBOARD, place, interpreter, _port(service, str(name))))
    return tuple(found)


def _port(service: JobService, name: str) -> int:
    """Return the service's port; 0: any that is free."""
    port = int(service.port or 0)
    if not 0 <= port <= _LAST_PORT:
        path = f"services.{name}.port"
        raise PlanError(
            f"{path}: {port} is not a port number",
            f"up to {_LAST_PORT}; left out: any that is free",
            path=path,
        )
    return port


def kind_of(service: object) -> str:
    """
    Return the kind of a service, however it is written.

    >>> kind_of(type("S", (), {"type": "TensorBoard"})())
    'tensor_board'
    """
    written = str(getattr(service, "type", None) or "").lower()
    return TENSORBOARD if written in ("tensor_board", "tensorboard") else written
