"""The programs beside a job's ranks that its ``services`` ask for."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from drumline.contract.errors import PlanError
from drumline.contract.plan import Service
from drumline.spec import placeholders
from drumline.spec.parts.services import asked_for

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drumline.contract.folder import RunFolder
    from drumline.spec.jobs.command import Command
    from drumline.spec.parts.services import JobService

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
