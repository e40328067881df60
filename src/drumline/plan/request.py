"""A job's numbers, checked: Azure's client accepts a job of no instance or minus one process; no machine runs it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import PlanError
from drumline.plan.layout import Request

if TYPE_CHECKING:
    from drumline.spec.command import Command

MOST_NODES = 4096
MOST_PROCESSES = 1024
"""On one node."""

MOST_RANKS = 16384

_NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,254}"


def check_name(name: str) -> None:
    """A job's name is a folder's: letters, digits, ``-``, ``_``, ``.``, 255 at most. Raises PlanError."""
    if not re.fullmatch(_NAME, name) or name.endswith("."):
        shown = name if len(name) <= 40 else name[:40] + "..."
        raise PlanError(
            f"name: {shown!r} cannot be a job's name",
            "letters, digits, '-', '_' and '.', beginning with a letter or digit, 255 at most",
        )


def distribution_of(job: Command) -> str:
    return str(job.distribution.type).lower() if job.distribution else "plain"


def settings_of(job: Command) -> dict[str, Any]:
    """``drumline:`` of a job."""
    return getattr(job, "drumline", None) or {}


def request_of(job: Command) -> Request:
    """Raises PlanError that names every number which cannot be."""
    resources = job.resources
    nodes = resources.instance_count if resources and resources.instance_count is not None else 1
    settings = settings_of(job)
    request = Request(
        node_count=nodes,
        process_count_per_node=getattr(job.distribution, "process_count_per_instance", None),
        worker_count=getattr(job.distribution, "worker_count", None),
        parameter_server_count=getattr(job.distribution, "parameter_server_count", None),
        chief=bool(settings.get("chief")),
        evaluator=bool(settings.get("evaluator")),
        once=bool(settings.get("once")),
    )
    wrong = [
        f"{field}: {value} is not between {least} and {most}"
        for field, value, least, most in (
            ("resources.instance_count", nodes, 1, MOST_NODES),
            ("distribution.process_count_per_instance", request.process_count_per_node, 1, MOST_PROCESSES),
            ("distribution.worker_count", request.worker_count, 1, MOST_NODES),
            ("distribution.parameter_server_count", request.parameter_server_count, 0, MOST_NODES),
        )
        if value is not None and not least <= value <= most
    ]
    timeout = timeout_of(job)
    if timeout is not None and timeout <= 0:
        wrong.append(f"limits.timeout: {timeout:g} is not a number of seconds above 0")
    most = max(request.process_count_per_node or 1, 1) * max(nodes, 1)
    if not wrong and most > MOST_RANKS:
        wrong.append(
            f"{nodes} nodes of {request.process_count_per_node} processes are more than {MOST_RANKS} ranks"
        )
    if wrong:
        raise PlanError("; ".join(wrong))
    return request


def timeout_of(job: Command) -> float | None:
    """Seconds; None for no limit."""
    timeout = job.limits.timeout if job.limits else None
    return None if timeout is None else float(timeout)
