"""
The plan of a job, rank by rank: the only thing an engine, a supervisor or an agent knows of it.

A plan is complete but for what only placed nodes know. Those facts have one spelling, as text inside
environment values, and are bound by ``bind`` once every node has joined:

* ``${node_0}``      the address of node 0, an IP
* ``${interface}``   the network interface that reaches the other nodes, which has a name on each node
* ``${ib_devices}``, ``${ucx_devices}``  what is to be used of that node's network by NCCL and UCX; a variable that is
                   this alone is left out where it is empty
* ``${gpus_0}``      the GPUs that node 0 was given, as CUDA_VISIBLE_DEVICES wants them
* ``${master_port}`` and every other name in ``Plan.ports``: a port that was free on its node

``${text:host_list}`` and the like stand for a text of ``Plan.texts``, so that a list of all nodes is there once and not
for each rank. ``contract/rank_variables.py`` puts all of it together.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Optional

from drumline.contract.errors import DamagedError
from drumline.contract.folder import load_plain
from drumline.contract.record import NamedTuple, describe_record, read_record

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

FORMAT = 2
"""Raised when an older version could misread a plan; 2: ``Plan.texts``."""

OUTPUT_VARIABLE = "AZURE_ML_OUTPUT_"
"""Before the name of an output, in ``Plan.user_env``; its value is where the output is."""

_LATE = re.compile(
    r"\$\{((?:node|gpus)_\d+|interface|ib_devices|ucx_devices|[a-z][a-z0-9_]*_port|text:[a-z][a-z0-9_]*)\}"
)


def address_of(node: int) -> str:
    """Return the late-bound address of a node, as it stands in a plan."""
    return f"${{node_{node}}}"


def host_name_of(node: int) -> str:
    """Return the name of a node, for programs that tell nodes by the names of hosts, where one machine has several."""
    return f"node-{node}"


def gpus_of(node: int) -> str:
    """Return the late-bound GPU list of a node, as it stands in a plan."""
    return f"${{gpus_{node}}}"


def late(name: str) -> str:
    """Return a late-bound port or interface, as it stands in a plan."""
    return f"${{{name}}}"


def text_of(name: str) -> str:
    """Return the reference to a text of ``Plan.texts``, as it stands in a plan."""
    return f"${{text:{name}}}"


def bind(text: str, facts: Mapping[str, str]) -> str:
    """
    Replace every late-bound name in a text, once; what a fact contains is not scanned again.

    Raises KeyError for a late-bound name that ``facts`` lacks.
    """
    return _LATE.sub(lambda match: facts[match.group(1)], text)


class NodeShape(NamedTuple):
    """
    The machine that an engine says a node will have; ``cores``: processor numbers on that node, where those are known.
    """

    cores: tuple[int, ...]
    gpu_count: int
    some_cores: int = 0
    """How many it will have, where only that is known; 0: it is not."""

    @property
    def core_count(self) -> int:
        """Return 0 where it is not known."""
        return len(self.cores) or self.some_cores


class RankTask(NamedTuple):
    """One rank: a process that the agent of its node starts and watches."""

    rank: int
    """Global, 0 to world size - 1; parameter servers come after the workers."""

    local_rank: int
    label: str
    """What a person calls it: ``3``, or ``ps0`` for a parameter server."""

    log: str
    """Its log file, relative to the run folder."""

    env: Mapping[str, str]
    """What differs from rank to rank; may hold late-bound names."""

    awaited: bool = True
    """False for a parameter server, which never ends by itself: it is ended when all others are done."""

    argv: tuple[str, ...] = ()
    """Its own program, with late-bound names; empty: the plan's."""


class NodeTask(NamedTuple):
    """One node: its share of the cores and GPUs, and its ranks."""

    node: int
    cores: tuple[int, ...]
    """Processor numbers that its ranks may use; empty: all that there are."""

    gpu_count: int
    env: Mapping[str, str]
    ranks: tuple[RankTask, ...]


class Launcher(NamedTuple):
    """
    A program that decides when each rank starts, such as ``mpirun``: it runs on node 0, below the agent there.

    The ranks are the agents' children all the same. What it starts is the shim of a rank, which has the agent of its
    node start that (``node/launcher/launcher_socket.py``), with the variables that the launcher gave the shim.
    """

    name: str
    """What a person calls it: ``mpirun``."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    """What it and its daemons get besides the node's variables. Late-bound names may stand in both."""

    log: str
    """Relative to the run folder."""


class Asked(NamedTuple):
    """
    Further wishes of a job to its engine, as its file has them; an engine honours or refuses each.

    ``options``: in the engine's own words, ``resources.properties`` under its name. ``memory`` and the like are there.
    """

    instance_type: str = ""
    priority: str = ""
    job_tier: str = ""
    options: Mapping[str, Any] = {}


class InputCopy(NamedTuple):
    """
    A local input that is copied before the ranks start: in mode ``download``, or to nodes without this machine's files.
    Both paths are absolute.
    """

    name: str
    source: str
    target: str


def is_below(path: str, folders: Iterable[str]) -> bool:
    """
    Return whether an absolute path is one of the folders, or in one.

    >>> is_below("/data/digits", ["/data/"]), is_below("/data", ["/data"]), is_below("/data2", ["/data"])
    (True, True, False)
    """
    return any(f"{path}/".startswith(folder.rstrip("/") + "/") for folder in folders)


class Fetch(NamedTuple):
    """An input that is elsewhere, or what an output that is mounted held before: in place before the ranks start."""

    name: str
    """``inputs.digits``, ``outputs.checkpoints``."""

    uri: str
    kind: str
    """``file``, ``folder``, or ``any``: whichever is there."""

    target: str
    """What the ranks see; absolute."""

    writable: bool
    """A copy that they may change; else a link to what the cache has, which is read-only."""

    mode: str
    """As the job has it: ``ro_mount``, ``download``, ``eval_mount``, ``eval_download``, ``rw_mount``."""

    datastore: str = ""
    """Whose record has the credentials; empty: they are found as the service's own tools do."""

    home: str = ""
    """In which that datastore is; absolute."""

    may_be_missing: bool = False
    mount: str = ""
    """``auto``, ``always``, ``never``: whether one whose mode is a mount is one; empty: as where it runs says."""


class Upload(NamedTuple):
    """An output that is written elsewhere when its ranks have ended; ``source`` is absolute."""

    name: str
    source: str
    uri: str
    kind: str
    """``file`` or ``folder``."""

    always: bool
    """However the attempt ended, as of a mount; else of a job that completed."""

    datastore: str = ""
    home: str = ""
    """As of Fetch."""


class Build(NamedTuple):
    """The environment of the ranks, which is made before they start, once for all jobs with the same content."""

    kind: str
    """``uv``, ``conda``; ``podman``, ``docker``, ``apptainer``."""

    digest: str
    """Of its content."""

    prefix: str
    """The folder that it is made in; absolute."""

    recipe: Mapping[str, Any]
    """All that its builder needs, as JSON can hold it."""

    name: str = ""
    """What the job calls it."""


class Service(NamedTuple):
    """A program beside the ranks, on the supervisor's machine, while they run."""

    name: str
    kind: str
    """``tensor_board``."""

    folder: str
    """That it shows; absolute, may come later."""

    python: str
    """Whose package of it is taken, where that has one."""

    port: int = 0
    """0: one that is free."""


class Registration(NamedTuple):
    """An output that becomes an asset when the job has completed."""

    output: str
    kind: str
    """``data`` or ``model``."""

    name: str
    version: str
    """Empty: the next one."""

    type: str
    path: str
    """Absolute, or the address that it is uploaded to."""

    home: str
    """In which the asset is to be; absolute."""

    description: str = ""


class Plan(NamedTuple):
    job: str
    engine: str
    distribution: str
    argv: tuple[str, ...]
    """The program of every rank and its arguments; a job's command is ``bash -c COMMAND``."""

    cwd: str
    env: Mapping[str, str]
    """Common to all ranks; may hold late-bound names. A rank's value wins over its node's, that over this."""

    unset: tuple[str, ...]
    """Variables of the surroundings that must not reach a rank, such as another launcher's; ``OMPI_*`` is a prefix."""

    nodes: tuple[NodeTask, ...]
    user_env: Mapping[str, str]
    """
    Taken as they are, nothing in them is late-bound: paths of inputs and outputs, PATH, and the user's own variables,
    which win over all but the ranks' coordinates (the planner left those out).
    """

    ports: Mapping[str, int]
    """Late-bound port name to the node on which it must be free."""

    grace_s: float
    """Between SIGTERM and SIGKILL."""

    timeout_s: float | None = None
    """From the start of the ranks; None: no limit."""

    hang_after_s: float = 0.0
    """Without any sign of life of any rank; 0: nobody looks."""

    hang_action: str = "report"
    """What then happens: ``report``, ``end`` or ``restart``."""

    max_restarts: int = 0
    """How often all ranks are started again when one fails."""

    restart_on: tuple[str, ...] = ()
    """For which failures only: ``supervisor/deciding/restarts.py``; empty: for all."""

    snapshot: str = ""
    """Content hash of the code; empty: the ranks run in ``cwd`` as it is."""

    beside: str = ""
    """A folder to whose files the working folder has links, where the snapshot lacks them; absolute. Empty: none."""

    copies: tuple[InputCopy, ...] = ()
    fetches: tuple[Fetch, ...] = ()
    uploads: tuple[Upload, ...] = ()
    build: Optional[Build] = None
    """None: what the ranks run in is there already."""

    container: Mapping[str, Any] = {}
    """
    In which each rank runs, where ``build`` is of that kind: kind, image, pull (as ``podman run --pull``), mounts
    (absolute paths), shm_bytes (0: no matter how much), arguments (more of the engine's own). Empty: in none.
    """

    folders: tuple[str, ...] = ()
    """Absolute paths that exist before the ranks start: the folders of named outputs."""

    launcher: Optional[Launcher] = None
    """What starts the ranks; None: the agents do."""

    remote_shell: bool = False
    """Whether ``ssh`` and ``pdsh`` of the job's processes reach its other nodes, without any ssh."""

    host_file: str = ""
    """The text of the file ``hosts`` in the run folder, with late-bound names; empty: there is none."""

    cores_wanted: int = 0
    """Cores that the job holds on a machine shared with others; at most all of them."""

    warnings: tuple[str, ...] = ()
    compute: Mapping[str, Any] = {}
    """The settings of the compute, as they were when the job was submitted; empty: this machine."""

    asked: Asked = Asked()
    workspace: str = ""
    """That the job is in; empty: the base home."""

    resolved: Mapping[str, str] = {}
    """
    What references in the job led to, by dotted field: ``inputs.x.path`` the local path of ``azureml:digits@latest``,
    ``inputs.x.asset`` the version that it was: ``azureml:digits:3``.
    """

    registers: tuple[Registration, ...] = ()
    services: tuple[Service, ...] = ()
    warm: str = "auto"
    """
    Whether ranks are forked from an interpreter that has their imports: ``auto`` where it helps, ``on`` wherever it can
    be, with an event where it cannot, ``off``.
    """

    preflight: bool = True
    """Whether several nodes that can differ are checked before the ranks start."""

    checks_only: bool = False
    """Whether the nodes are checked, also a single one, and the job ends then: no rank starts."""

    secrets: tuple[str, ...] = ()
    """Names of more variables of the ranks, whose values are stored nowhere: ``contract/secrets.py``."""

    notify: tuple[Mapping[str, Any], ...] = ()
    """
    Whom to tell of what: each with name, kind (webhook, apprise, command), on (end, failure, hang, preemption)
    and command. Their addresses are passed on like secrets.
    """

    texts: Mapping[str, str] = {}
    """
    Long texts that many values have in them, such as the list of all nodes; in a value ``${text:NAME}`` stands for
    each. They may hold late-bound names.
    """

    format: int = FORMAT

    @property
    def wants_launcher_sockets(self) -> bool:
        """
        Return whether programs of the job ask the agents for something: for ranks, or for commands on other nodes.
        """
        return self.launcher is not None or self.remote_shell

    @property
    def ranks(self) -> tuple[RankTask, ...]:
        """Return every rank, in the order of the ranks."""
        return tuple(sorted((task for node in self.nodes for task in node.ranks), key=lambda task: task.rank))

    def to_json(self) -> str:
        """Return the plan as JSON, with a line for each rank."""
        data = describe_record(self._replace(nodes=()))
        head, nodes, rest = json.dumps(data, indent=1).partition('\n "nodes": [')
        return head + nodes + ",".join(map(_format_node, self.nodes)) + rest

    @classmethod
    def read(cls, path: str) -> Plan:
        """Read the plan in a file. Raises OSError, and ValueError as ``from_json``."""
        return cls.from_json(load_plain(path).decode())

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Return the plan of this text. Raises ValueError for a newer format, DamagedError for what is no plan."""
        try:
            data = json.loads(text)
            if data.get("format", 0) > FORMAT:
                raise ValueError(
                    f"this plan has format {data['format']}, and {FORMAT} is the newest known here"
                )
            if data.get("launcher"):
                data["launcher"].pop("own_host_names", None)  # Earlier plans have it.
            plan: Plan = read_record(cls, data)
            tasks = [task for node in plan.nodes for task in node.ranks]
        except (TypeError, LookupError, AttributeError, RecursionError) as error:
            raise DamagedError(f"the plan is damaged: {type(error).__name__}: {error}") from error
        for task in tasks:
            parts = task.log.split("/") if isinstance(task.log, str) else ()
            # A job can write a plan too.
            if len(parts) != 2 or any(part in ("", ".", "..") for part in parts):
                raise ValueError(f"the log {task.log!r} is not in the run folder")
        return plan


def _format_node(node: NodeTask) -> str:
    """Format a node as JSON: with an encoder that indents, a plan of 10,000 ranks takes seconds."""
    head = json.dumps({**node._asdict(), "ranks": []})
    ranks = ",".join("\n   " + json.dumps(task._asdict()) for task in node.ranks)
    return f"\n  {head[:-2]}{ranks}]}}"
