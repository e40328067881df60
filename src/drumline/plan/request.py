"""A job's numbers, checked: Azure's client accepts a job of no instance or minus one process; no machine runs it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import PlanError, Problem
from drumline.contract.folder import STEPS
from drumline.contract.plan import Asked
from drumline.plan.layout import RaySettings, Request
from drumline.spec.kinds.values import switch

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from drumline.spec.jobs.command import Command

MOST_NODES = 4096
MOST_PROCESSES = 1024
"""On one node."""

MOST_RANKS = 32768
MOST_PORT = 65535
MOST_RESTARTS = 1000
RESTART_KINDS = ("failure", "node", "hang")
WARM = "DRUMLINE_WARM"
"""The variable that says it for jobs which do not."""

_OWN_VARIABLES = ("PATH", "PYTHONPATH")

WARM_WORDS = ("auto", "on", "off")

_NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,254}"


def check_name(name: str) -> None:
    """Check that a name can be a folder's: letters, digits, ``-``, ``_``, ``.``, 255 at most. Raises PlanError."""
    if not re.fullmatch(_NAME, name) or name.endswith("."):
        shown = name if len(name) <= 40 else name[:40] + "..."
        raise PlanError(
            f"name: {shown!r} cannot be a job's name",
            "letters, digits, '-', '_' and '.', beginning with a letter or digit, 255 at most",
            path="name",
        )


def distribution_of(job: Command) -> str:
    if settings_of(job).get("parallel"):
        return "parallel"
    return str(job.distribution.type).lower() if job.distribution else "plain"


def settings_of(job: Command) -> dict[str, Any]:
    """Return ``drumline:`` of a job."""
    return getattr(job, "drumline", None) or {}


def request_of(job: Command) -> Request:
    """Return the numbers of a job. Raises PlanError that names every impossible number."""
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
        ray=_ray_of(job.distribution),
        once=bool(settings.get("once")),
        mpi_mode=str(settings.get("mpi") or "launcher").lower(),
    )
    wrong = [
        Problem(f"{field}: {value} is not between {least} and {most}", path=field)
        for field, value, least, most in (
            ("resources.instance_count", nodes, 1, MOST_NODES),
            ("distribution.process_count_per_instance", request.process_count_per_node, 1, MOST_PROCESSES),
            ("distribution.worker_count", request.worker_count, 1, MOST_NODES),
            ("distribution.parameter_server_count", request.parameter_server_count, 0, MOST_NODES),
            ("distribution.port", request.ray.port, 1, MOST_PORT),
            ("distribution.dashboard_port", request.ray.dashboard_port, 1, MOST_PORT),
        )
        if value is not None and not least <= value <= most
    ]
    wrong += [
        Problem(
            f"drumline.{task}: only distribution: {{type: tensorflow}} has such a task",
            path=f"drumline.{task}",
        )
        for task in ("chief", "evaluator")
        if settings.get(task) and distribution_of(job) != "tensorflow"
    ]
    if settings.get("mpi") and distribution_of(job) != "mpi":
        what = "drumline.mpi: only distribution: {type: mpi} has a launcher to choose"
        wrong.append(Problem(what, path="drumline.mpi"))
    wrong += _of_restarts(settings)
    timeout = timeout_of(job)
    if timeout is not None and timeout <= 0:
        what = f"limits.timeout: {timeout:g} is not a number of seconds above 0"
        wrong.append(Problem(what, path="limits.timeout"))
    most = max(request.process_count_per_node or 1, 1) * max(nodes, 1)
    if not wrong and most > MOST_RANKS:
        what = f"{nodes} nodes of {request.process_count_per_node} processes are more than {MOST_RANKS} ranks"
        wrong.append(Problem(what, path="distribution.process_count_per_instance"))
    if wrong:
        raise PlanError(wrong)
    return request


def asked_of(job: Command, engine: str) -> Asked:
    """Return the fields that only the engine understands."""
    resources, queue = job.resources, job.queue_settings
    properties = getattr(resources, "properties", None) or {}
    options = properties.get(engine) if isinstance(properties, dict) else None
    if options is not None and not isinstance(options, dict):
        path = f"resources.properties.{engine}"
        raise PlanError(f"{path}: not a mapping of options to values", path=path)
    return Asked(
        instance_type=_text(getattr(resources, "instance_type", None)),
        priority=_text(getattr(queue, "priority", None)).lower(),
        job_tier=_text(getattr(queue, "job_tier", None)).lower(),
        options=dict(options or {}),
    )


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _of_restarts(settings: dict[str, Any]) -> list[Problem]:
    wrong = []
    most = settings.get("max_restarts")
    if most is not None and not 0 <= most <= MOST_RESTARTS:
        what = f"drumline.max_restarts: {most} is not between 0 and {MOST_RESTARTS}"
        wrong.append(Problem(what, path="drumline.max_restarts"))
    for index, one in enumerate(settings.get("restart_on") or ()):
        text = str(one)
        if text not in RESTART_KINDS and not (text.isdecimal() and 1 <= int(text) <= 255):
            what = (
                f"drumline.restart_on: {text!r} is neither an exit code from 1 to 255 nor a kind of failure"
            )
            hint = "kinds are " + ", ".join(RESTART_KINDS)
            wrong.append(Problem(what, path=f"drumline.restart_on.{index}", hint=hint))
    restarts = settings.get("restart_on") or str(settings.get("hang_action") or "").lower() == "restart"
    if restarts and not most:
        what = "drumline.max_restarts: nothing is started again without it"
        wrong.append(Problem(what, path="drumline.max_restarts", hint="set it to 1 or more"))
    return wrong


def secrets_of(job: Command, taken: Container[str]) -> tuple[str, ...]:
    """Return the names of a job's secrets. ``taken``: the variables that its plan sets. Raises PlanError."""
    names = tuple(dict.fromkeys(map(str, settings_of(job).get("secrets") or ())))
    own = job.environment_variables or {}
    wrong = []
    for name in names:
        what, hint = "", ""
        if "=" in name:
            # Without the value, which may be one.
            what = f"{name.partition('=')[0]} has a value here; a job has the names of its secrets alone"
            hint = "export the variable before you submit, or --secret NAME=@FILE"
        elif not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            what = f"{name!r} cannot be a variable's name"
            hint = "letters, digits and '_', not beginning with a digit"
        elif name in own:
            what, hint = (
                f"{name} is in environment_variables too",
                "remove it there, where its value is stored",
            )
        elif name in taken or name in _OWN_VARIABLES or name.startswith("DRUMLINE_"):
            what = f"{name} is a variable that Drumline sets"
        if what:
            wrong.append(Problem(f"drumline.secrets: {what}", path="drumline.secrets", hint=hint))
    if wrong:
        raise PlanError(wrong)
    return names


def _ray_of(distribution: Any) -> RaySettings:
    """Return the settings of Ray. Raises PlanError."""
    if getattr(distribution, "address", None):
        raise PlanError(
            "distribution.address: joining a Ray cluster that is there already is not supported",
            "leave it out, and the job's nodes become a cluster",
            path="distribution.address",
        )
    return RaySettings(
        port=getattr(distribution, "port", None),
        include_dashboard=bool(getattr(distribution, "include_dashboard", None)),
        dashboard_port=getattr(distribution, "dashboard_port", None),
        head_args=_words(distribution, "head_node_additional_args"),
        worker_args=_words(distribution, "worker_node_additional_args"),
    )


def _words(distribution: Any, field: str) -> tuple[str, ...]:
    """Split a field as a shell would that expands nothing. Raises PlanError."""
    import shlex

    try:
        words = tuple(shlex.split(getattr(distribution, field, None) or ""))
    except ValueError as error:
        what = f"distribution.{field}: {str(error).lower()}"
        raise PlanError(what, path=f"distribution.{field}") from error
    if any("\0" in word for word in words):
        what = f"distribution.{field}: an argument cannot hold a zero byte"
        raise PlanError(what, path=f"distribution.{field}")
    return words


def warm_of(job: Command, variables: Mapping[str, str]) -> str:
    """
    Return what the job says of warm starts: ``auto``, ``on``, ``off``; empty: nothing. Raises PlanError.

    ``variables``: its own, of which one says it where ``drumline:`` does not.
    """
    said = settings_of(job).get("warm")
    if said is not None:
        return warm(str(said), "drumline.warm")
    if variables.get(WARM):
        return warm(variables[WARM], f"environment_variables.{WARM}")
    return ""


def steps_variables(job: Command) -> dict[str, str]:
    """Return the variable that switches the following of steps off, where the job does not want it."""
    is_off = switch(str(settings_of(job).get("steps", "auto"))) == "off"
    return {STEPS: "0"} if is_off else {}


def warm(text: str, path: str) -> str:
    """Return the word for warm starts. Raises PlanError for none of the words."""
    word = switch(text)
    if word not in WARM_WORDS:
        raise PlanError(f"{path}: must be one of {', '.join(WARM_WORDS)}; got {text!r}", path=path)
    return word


def timeout_of(job: Command) -> float | None:
    """Return the limit in seconds; None for no limit."""
    timeout = job.limits.timeout if job.limits else None
    return None if timeout is None else float(timeout)
