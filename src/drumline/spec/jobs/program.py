"""The program of a job: what a command job, a command component and the trial of a sweep have alike."""

from __future__ import annotations

from drumline.spec.hints import add_place
from drumline.spec.kinds.fields import Declared, field
from drumline.spec.kinds.locations import Code
from drumline.spec.kinds.records import Record
from drumline.spec.kinds.values import (
    Anything,
    Flag,
    Integer,
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
from drumline.spec.parts.resources import PYTHON_RESOURCES, QUEUE_SETTINGS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

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


VARIABLES = MapOf(Anything())


class RankProgram(Declared):
    """Setting a part such as ``distribution``, ``resources`` or ``environment`` to a dictionary makes the object."""

    command: str | None = field(_TEXT, "The shell command that every rank runs.", default=None)
    code: Any = field(
        Code(),
        "The folder that is copied to the job, and is its working folder; relative to this file.",
        default=None,
    )
    environment: Any = field(
        EnvironmentKind(),
        "The packages or the image of the job; default: the Python that submits it.",
        default=None,
    )
    distribution: Any = field(
        DISTRIBUTION,
        "How the processes of the job find each other; without it, one process on each node.",
        default=None,
    )
    resources: Any = field(PYTHON_RESOURCES, "The number of nodes and what each of them has.", default=None)
    queue_settings: Any = field(QUEUE_SETTINGS, "The priority of the job.", default=None)
