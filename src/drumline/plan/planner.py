"""A job and the shapes of its nodes in, a plan out."""

from __future__ import annotations

import os
import re
from importlib import import_module
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import PlanError
from drumline.contract.plan import NodeShape, NodeTask, Plan, RankTask, host_name_of
from drumline.contract.record import NamedTuple, compile_late
from drumline.plan import bound_values, container, environment, shell, unsupported
from drumline.plan.distributions import parallel
from drumline.plan.layout import oversubscription_warnings, shared_texts
from drumline.plan.request import (
    asked_of,
    check_name,
    distribution_of,
    request_of,
    secrets_of,
    settings_of,
    steps_variables,
    timeout_of,
    warm_of,
)
from drumline.spec import placeholders
from drumline.spec.kinds.values import switch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drumline.contract.folder import RunFolder
    from drumline.contract.installed_mpi import Mpi
    from drumline.contract.plan import Build
    from drumline.plan.layout import Layout, Process, Request
    from drumline.spec.jobs.command import Command


LAUNCHED_BY_COMMAND = ("mpi", "plain", "pytorch")
"""The distributions in which the command may be a launcher itself."""

LAYOUTS = {
    "mpi": "drumline.plan.distributions.mpi",
    "parallel": "drumline.plan.distributions.parallel",
    "once": "drumline.plan.distributions.once",
    "plain": "drumline.plan.distributions.plain",
    "pytorch": "drumline.plan.distributions.pytorch",
    "ray": "drumline.plan.distributions.ray",
    "tensorflow": "drumline.plan.distributions.tensorflow",
}


def lay_out(distribution: str, request: Request) -> Layout:
    """Lay out the processes of a job. Raises PlanError for what the distribution refuses."""
    if request.once:
        if distribution not in LAUNCHED_BY_COMMAND:
            raise PlanError(
                f"drumline.once: with distribution {distribution!r} every process is started here",
                "leave it out, or use type: pytorch or mpi",
                path="drumline.once",
            )
        distribution = "once"
    layout: Layout = import_module(LAYOUTS[distribution]).lay_out(request)
    return layout


GRACE_S = 30.0
"""Between SIGTERM and SIGKILL, unless ``drumline.grace`` says otherwise. Source: Kubernetes' default."""

HANG_AFTER_S = 300.0
"""Without a sign of life of any rank, unless ``drumline.hang_after`` says otherwise."""

_VARIABLE = r"[A-Za-z_][A-Za-z0-9_]*"


_HOST_FILE_NAMES = (
    "DRUMLINE_HOSTFILE",
    # What an mpirun without a file of hosts takes: Open MPI 4's name for it, and 5's.
    "OMPI_MCA_orte_default_hostfile",
    "PRTE_MCA_prte_default_hostfile",
)


class Site(NamedTuple):
    """The site of a job: all that is known of it before it has nodes."""

    engine: str
    shapes: tuple[NodeShape, ...]
    folder: RunFolder
    interpreter: str
    """Absolute path of the Python whose folder comes first on the ranks' PATH."""

    search_path: str
    """PATH of whoever submits."""

    mlflow_uri: str
    mpi: Mpi | None = None
    """The MPI of the nodes; None: there is none, or the job needs none."""

    compute: Mapping[str, object] = {}
    """The settings of the compute; empty: this machine, under no name."""

    shares_machine: bool = False
    """Whether all nodes are one machine."""

    reached: tuple[str, ...] | None = None
    """As of ``bound_values.Values``."""

    in_place: str = ""
    """The ranks' working folder when it is not a snapshot's copy."""

    argv: tuple[str, ...] = ()
    """The program, when it was given as words and needs no shell."""

    beside: str = ""
    """As of the plan."""

    kept: Mapping[str, bound_values.Kept] = {}
    """Of inputs and outputs in datastores: ``bound_values.Values``."""

    build: Build | None = None
    """The environment to make; ``interpreter`` is in it."""

    variables: Mapping[str, str] = {}
    """That the environment sets."""

    warm: str = ""
    """What whoever submits wishes for jobs that do not say: ``auto``, ``on``, ``off``; empty: nothing."""


def plan_job(job: Command, site: Site) -> Plan:
    """Plan a job. Raises PlanError, SpecError: valid for Azure, but it cannot run, or not yet."""
    name = site.folder.name
    check_name(name)
    request = request_of(job)
    distribution = distribution_of(job)
    if distribution == "parallel":
        shapes = site.shapes[: request.node_count]
        count = parallel.workers(job, shapes, share_machine=site.shares_machine)
        request = request._replace(process_count_per_node=count)
    layout = lay_out(distribution, _at(site, request))
    settings = settings_of(job)
    data = bound_values.Values(job, site.folder, site.kept, site.reached)
    user_env, user_warnings = _user_env(job, layout)
    kept, kept_warnings = _kept_variables(site, layout)
    nodes = _nodes(layout, site.shapes, request.node_count)
    experiment = job.experiment_name or "Default"
    cwd = site.in_place or site.folder.code
    named = environment.job_variables(name, site.folder, experiment, cwd, job._top_job)
    named |= environment.tracking_variables(name, experiment, site.mlflow_uri, user_env)
    hosts = dict.fromkeys(_HOST_FILE_NAMES, site.folder.hosts) if layout.host_file else {}
    if layout.host_file:
        hosts["HYDRA_HOST_FILE"] = site.folder.hydra_hosts
    common = environment.cluster_variables(request.node_count, has_network=site.engine != "local")
    if site.compute.get("nccl_topo_file"):
        common["NCCL_TOPO_FILE"] = str(site.compute["nccl_topo_file"])
    if request.node_count > 1:
        common.update(environment.master_node(layout))
    preflight = switch(str(settings.get("preflight", "auto")))
    planned = Plan(
        job=name,
        engine=site.engine,
        distribution=distribution,
        argv=(*layout.before, *(site.argv or ("/bin/bash", "-c", _command(job, data)))),
        cwd=cwd,
        beside=site.beside,
        env={**common, **layout.env},
        user_env={
            **named,
            **_data_variables(data),
            **_path(site),
            **environment.activation_variables(site.build, kept),
            **hosts,
            **user_env,
            **steps_variables(job),
            **parallel.variables(job, site.folder, request),
        },
        unset=(*environment.UNSET, *environment.variables_of_others(site.build)),
        nodes=nodes,
        texts={**shared_texts(request.node_count), **layout.texts},
        ports=dict(layout.ports),
        grace_s=_seconds(settings, "grace", GRACE_S),
        timeout_s=timeout_of(job),
        hang_after_s=_seconds(settings, "hang_after", HANG_AFTER_S),
        hang_action=str(settings.get("hang_action") or "report").lower(),
        max_restarts=int(settings.get("max_restarts") or 0),
        restart_on=tuple(map(str, settings.get("restart_on") or ())),
        warm=warm_of(job, user_env) or site.warm or "auto",
        preflight=preflight != "off",
        checks_only=preflight == "only",
        copies=tuple(data.copies),
        fetches=tuple(data.fetches),
        uploads=tuple(data.uploads),
        build=site.build,
        folders=tuple(data.folders),
        services=unsupported.plan_services(job, site.folder, data.texts, cwd, site.interpreter),
        launcher=layout.launcher,
        remote_shell=layout.remote_shell,
        host_file=layout.host_file,
        compute=dict(site.compute),
        asked=asked_of(job, site.engine),
        cores_wanted=layout.slots * request.node_count
        or sum(process.holds_core for process in layout.processes),
        warnings=(
            *unsupported.list_warnings(job, site.interpreter, site.engine, is_attached=bool(site.compute)),
            *layout.warnings,
            *_launcher_warnings(job, request),
            *oversubscription_warnings(
                site.shapes[: request.node_count],
                [max(len(node.ranks), layout.slots) for node in nodes],
                shares_machine=site.shares_machine,
            ),
            *user_warnings,
            *kept_warnings,
        ),
    )
    if settings.get("secrets"):
        rank_variables = {name for task in planned.ranks for name in task.env}
        taken = {
            *planned.env,
            *planned.user_env,
            *rank_variables,
            *(name for node in nodes for name in node.env),
        }
        planned = planned._replace(secrets=secrets_of(job, taken))
    places = [path for _, path, _ in data.checks]
    return container.within(planned, job, [*places, *parallel.places(job)])


def _at(site: Site, request: Request) -> Request:
    """Return the request, with what is known of the nodes."""
    per_node = request.process_count_per_node or 1
    shapes = site.shapes[: request.node_count]
    shared = site.shares_machine and request.node_count > 1
    crowded = shared or any(0 < shape.core_count < per_node for shape in shapes)
    return request._replace(
        job=site.folder.name,
        gpu_counts=tuple(shape.gpu_count for shape in shapes),
        mpi=site.mpi,
        nodes_share_machine=shared,
        is_crowded=crowded,
    )


_LAUNCHER = compile_late(
    r"(?:^|[\s;&|(])"
    r"(torchrun|accelerate launch|deepspeed|mpirun|mpiexec|horovodrun|torch\.distributed\.(?:run|launch))\s"
)


def _launcher_warnings(job: Command, request: Request) -> list[str]:
    """
    Warn of a launcher in each of several processes of a node, and of DeepSpeed's without a hostfile.

    The first start many worlds, which meet at one port; the second trains on one node, without a word. As ``deepspeed``
    on the PATH it is given the file (``node/launcher/deepspeed_shim.py``).
    """
    command = str(job.command or "")
    count = request.process_count_per_node or 1
    launcher = _LAUNCHER.search(command) if count > 1 and not request.once else None
    if launcher:
        return [
            f"command: it starts {launcher[1]} in each of the {count} processes of a node; "
            "set process_count_per_instance to 1, or start the script with python in its place"
        ]
    is_on_path = not re.search(r"/deepspeed(\s|$)|deepspeed\.launcher", command)
    if not request.once or request.node_count == 1 or is_on_path or "hostfile" in command.lower():
        return []
    return ['command: deepspeed without --hostfile "$DRUMLINE_HOSTFILE" starts ranks on node 0 alone']


def node_count(job: Command) -> int:
    """Return how many nodes to ask an engine for. Raises PlanError."""
    return request_of(job).node_count


def needs_mpi(job: Command) -> bool:
    """Return whether somebody has to look which MPI there is."""
    return distribution_of(job) == "mpi" and settings_of(job).get("mpi") != "environment"


def _nodes(layout: Layout, shapes: tuple[NodeShape, ...], node_count: int) -> tuple[NodeTask, ...]:
    tasks = []
    by_node: list[list[Process]] = [[] for _ in range(node_count)]
    for process in layout.processes:
        by_node[process.node].append(process)
    for node, mine in enumerate(by_node):
        count = max(len(mine), layout.slots)
        gpus = shapes[node].gpu_count
        shape = shapes[node]._replace(gpu_count=gpus if layout.whole_nodes else min(gpus, count))
        ranks = tuple(
            RankTask(
                rank=process.rank,
                local_rank=process.local_rank,
                label=process.label,
                log=process.log,
                env={**environment.rank_variables(process), **process.env},
                awaited=process.awaited,
                argv=process.argv,
            )
            for process in mine
        )
        env = environment.node_variables(node, shape, count)
        if layout.own_host_names and node:
            env["PMIX_HOSTNAME"] = host_name_of(node)
        tasks.append(NodeTask(node, shape.cores, shape.gpu_count, env, ranks))
    return tuple(tasks)


def _command(job: Command, data: bound_values.Values) -> str:
    command = str(job.command or "")
    if not command.strip():
        raise PlanError("command: the job has no command", path="command")
    odd = next((character for character in command if character in "\0\x01\x02"), None)
    if odd is not None:
        raise PlanError(f"command: the character U+{ord(odd):04X} cannot be in a command", path="command")
    unsafe = [name for name in data.paths if not shell.is_safe(data.texts[name])]
    marked = data.texts | {name: shell.mark(index) for index, name in enumerate(unsafe)}
    expanded = placeholders.expand(command, marked, where="command")
    return shell.put(expanded, [bound_values.variable_of(name) for name in unsafe])


def _data_variables(data: bound_values.Values) -> dict[str, str]:
    for name, value in data.texts.items():
        if "\0" in value:
            raise PlanError(f"{name}: a value cannot hold a zero byte", path=name)
    return {bound_values.variable_of(name): value for name, value in data.texts.items()}


def _path(site: Site) -> dict[str, str]:
    """Return a PATH in which ``python`` is the Python that drumline runs in, activated or not."""
    folder = os.path.dirname(site.interpreter)
    if container.is_one(site.build):
        return {}
    if site.search_path.split(os.pathsep)[0] == folder:
        return {}
    return {"PATH": os.pathsep.join(part for part in (folder, site.search_path) if part)}


def _user_env(job: Command, layout: Layout) -> tuple[dict[str, str], list[str]]:
    chosen: dict[str, str] = {}
    warnings = []
    given: Mapping[str, object] = job.environment_variables or {}
    for name, value in given.items():
        if not re.fullmatch(_VARIABLE, name):
            raise PlanError(
                f"environment_variables: {name!r} cannot be a variable's name",
                "letters, digits and '_', not beginning with a digit",
                path=f"environment_variables.{name}",
            )
        if "\0" in str(value):
            path = f"environment_variables.{name}"
            raise PlanError(f"{path}: a value cannot hold a zero byte", path=path)
        if name in layout.coordinates:
            warnings.append(f"environment_variables.{name}: not used; it is the rank's own coordinate")
        elif value is not None:
            chosen[name] = str(value)
    return chosen, warnings


def _kept_variables(site: Site, layout: Layout) -> tuple[dict[str, str], list[str]]:
    """Return the variables of its conda file, and warnings of those that are not its to set."""
    where = "environment.conda_file.variables"
    taken = [name for name in site.variables if name in layout.coordinates]
    kept = {name: value for name, value in site.variables.items() if name not in taken}
    return kept, [f"{where}.{name}: not used; it is the rank's own coordinate" for name in taken]


def _seconds(settings: Mapping[str, Any], name: str, default: float) -> float:
    seconds = settings.get(name)
    return default if seconds is None else float(seconds)
