"""The tables of a command job."""

from __future__ import annotations

from drumline.spec.hints import add_place
from drumline.spec.kinds.fields import field
from drumline.spec.kinds.locations import Code
from drumline.spec.kinds.records import Record
from drumline.spec.kinds.values import (
    Anything,
    Flag,
    Integer,
    Kind,
    ListOf,
    MapOf,
    OneOf,
    Seconds,
    Switch,
    Text,
    VersionText,
)
from drumline.spec.parts.distribution import DISTRIBUTION
from drumline.spec.parts.environment import EnvironmentKind
from drumline.spec.parts.io import INPUTS, OUTPUTS
from drumline.spec.parts.resources import IDENTITY, LIMITS, PYTHON_RESOURCES, QUEUE_SETTINGS, RESOURCES
from drumline.spec.parts.services import SERVICES

_TEXT = Text()

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
    },
)

add_place("drumline", DRUMLINE.fields)

READ_ONLY = ("$schema", "id", "status", "creation_context", "log_files")

BASE: dict[str, Kind] = {
    "name": _TEXT,
    "display_name": _TEXT,
    "experiment_name": _TEXT,
    "description": _TEXT,
    "tags": MapOf(Text(nullable=True)),
    "properties": MapOf(Text(nullable=True)),
    "services": SERVICES,
    "compute": _TEXT,
    "identity": IDENTITY,
}
"""The fields of every type of job."""

PROGRAM: dict[str, Kind] = {
    "command": _TEXT,
    "code": Code(),
    "environment": EnvironmentKind(),
    "environment_variables": MapOf(Anything()),
    "resources": RESOURCES,
    "distribution": DISTRIBUTION,
    "queue_settings": QUEUE_SETTINGS,
}
"""What runs, of a command job and of a sweep's trial."""

_FIELDS: dict[str, Kind] = {
    "type": OneOf("command", fold=str),
    **BASE,
    **PROGRAM,
    "limits": LIMITS,
    "inputs": INPUTS,
    "outputs": OUTPUTS,
    "parent_job_name": _TEXT,
    "drumline": DRUMLINE,
}

COMMAND_JOB = Record("a command job", _FIELDS, required=("command",), ignored=(*READ_ONLY, "parameters"))
PYTHON_COMMAND_JOB = Record(
    "a command job",
    {**_FIELDS, "resources": PYTHON_RESOURCES},
    required=("command",),
    ignored=(*READ_ONLY, "parameters"),
)
