"""The changes that a job's image makes to its plan: the ranks are the same, each in a container on its node."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from drumline.contract.plan import Build, Plan
    from drumline.spec.jobs.command import Command

KINDS = ("podman", "apptainer", "docker")

_CONTAINER_WARNINGS = ("resources.shm_size:", "resources.docker_args:", "command: an installation")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([bkmgt]?)(?:i?b)?", re.IGNORECASE)
_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}

_OURS = re.compile(
    r"--detach(=.*)?|--name(=.*)?|--entrypoint(=.*)?|--cidfile(=.*)?|-[dPqit]*[dit][dPqit]*"
    r"|--interactive(=.*)?|--tty(=.*)?|--rm(=.*)?|--pull(=.*)?"
)
"""Arguments that would take from us what we start, or know it by."""


def is_one(build: Build | None) -> bool:
    """Return whether ranks run in a container, on its image's PATH."""
    return build is not None and build.kind in KINDS


def within(plan: Plan, job: Command, data: Sequence[str]) -> Plan:
    """
    Return the plan, with the container of its ranks. Raises PlanError for ranks that cannot be in one.

    ``data``: local paths of inputs.
    """
    build = plan.build
    if build is None or not is_one(build):
        return plan
    _refuse(plan, build)
    container = {
        "kind": build.kind,
        "image": str(build.recipe["image"]),
        "pull": "never" if plan.engine == "local" or build.recipe.get("is_made") else "missing",
        "mounts": list(dict.fromkeys(_mounts(plan, data))),
        # Ranks of an MPI that starts them share memory, which must be one for all.
        "shm_bytes": 0 if plan.launcher else shm_bytes(job),
        "arguments": arguments(job),
    }
    # What is said of resources elsewhere is said of jobs without a container.
    warnings = [one for one in plan.warnings if not one.startswith(_CONTAINER_WARNINGS)]
    warnings += _warnings(job, plan, container)
    return plan._replace(container=container, warnings=tuple(warnings))


def _refuse(plan: Plan, build: Build) -> None:
    what = ""
    if plan.distribution == "ray":
        what = "a cluster of Ray is not started in containers"
    elif plan.remote_shell:
        what = "with drumline.once on several nodes the command starts ranks by ssh, which leads out of its container"
    if what:
        raise PlanError(
            f"environment: {what}",
            "with `drumline: {environment: current}` the job runs with the interpreter at hand, without its image",
            path="environment",
        )
    if (
        plan.engine != "local"
        and len(plan.nodes) > 1
        and build.recipe.get("is_made")
        and build.kind != "apptainer"
    ):
        raise PlanError(
            f"environment: the image is made on one node, and {build.kind} keeps it where others cannot see it",
            "push it to a registry and name it as `image`, or install apptainer, which keeps images in files",
            path="environment",
        )


def _mounts(plan: Plan, data: Sequence[str]) -> Iterator[str]:
    """Yield the paths to mount, which are the same inside as outside."""
    yield plan.user_env["DRUMLINE_RUN_FOLDER"]
    yield plan.cwd
    yield from data
    yield from plan.folders
    # Where they are links into the cache, what they lead to is there too.
    yield from (fetch.target for fetch in plan.fetches)
    metrics = _local_path(plan.user_env.get("MLFLOW_TRACKING_URI", ""))
    if metrics:
        yield metrics


def _local_path(uri: str) -> str:
    from urllib.parse import unquote, urlsplit

    parts = urlsplit(uri)
    if parts.scheme not in ("", "file") or parts.netloc:
        return ""
    path = unquote(parts.path)
    return path if path.startswith("/") else ""


def shm_bytes(job: Command) -> int:
    """Return ``resources.shm_size`` in bytes, 0 if it is not given. Raises PlanError."""
    text = str(getattr(job.resources, "shm_size", None) or "").strip()
    if not text:
        return 0
    found = _SIZE.fullmatch(text)
    if found is None:
        raise PlanError(
            f"resources.shm_size: {text!r} is not a size", "such as 512m or 8g", path="resources.shm_size"
        )
    return int(float(found[1]) * _UNITS[found[2].lower()])


def arguments(job: Command) -> list[str]:
    """
    Return ``resources.docker_args`` as words. Raises PlanError for what would take the container out of our hands.
    """
    import shlex

    given: Any = getattr(job.resources, "docker_args", None) or []
    where = "resources.docker_args"
    try:
        listed = [given] if isinstance(given, str) else [str(one) for one in given]
        # Of a list, one that begins with a dash may be an option with its value: "--ulimit memlock=-1".
        words = [
            word
            for one in listed
            for word in (shlex.split(one) if one is given or one.startswith("-") else [one])
        ]
    except ValueError as error:
        raise PlanError(f"{where}: {str(error).lower()}", path=where) from error
    for word in words:
        if "\0" in word:
            raise PlanError(f"{where}: an argument cannot hold a zero byte", path=where)
        if len(word) > 1 and _OURS.fullmatch(word):
            raise PlanError(f"{where}: {word} is not the job's to choose", "leave it out", path=where)
    return words


def _warnings(job: Command, plan: Plan, container: dict[str, Any]) -> Iterator[str]:
    if shm_bytes(job) and (plan.launcher or container["kind"] == "apptainer"):
        yield "resources.shm_size: not used; these ranks share the memory of their node"
    if container["arguments"] and container["kind"] == "apptainer":
        yield "resources.docker_args: not used; apptainer has other arguments"
    if plan.launcher:
        yield (
            f"environment: the node's own {plan.launcher.name} starts the ranks in their containers; "
            "the image needs the same MPI, of the same version"
        )
