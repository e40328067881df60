"""``drumline compute``: the verbs of ``az ml compute``, for existing clusters."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from drumline.cli.arguments import Parser, add_name, add_output, add_set, get_name, run_verb
from drumline.control.machine import computes

if TYPE_CHECKING:
    from argparse import Namespace

    from drumline.cli.arguments import Verbs


def main(argv: list[str]) -> int:
    return run_verb("compute", "Manage the machines that jobs run on.", VERBS, argv)


# attach, create

SLURM_FIELDS = {
    "partition": "the partition of its jobs",
    "account": "the account that its jobs are charged to",
    "qos": "the quality of service of its jobs",
    "spot-partition": "the partition of jobs with job_tier: spot",
    "spot-qos": "the quality of service of jobs with job_tier: spot",
    "folder": "where the run folders of its jobs are; visible on all nodes",
    "scratch": "a folder on each node for temporary files",
    "python": "the Python on the nodes that has drumline",
    "cores-per-node": "cores of each node that a job gets",
    "gpus-per-node": "GPUs of each node that a job gets",
    "memory-per-node": "memory of each node that a job gets, such as 64G",
    "interface": "the network interface between ranks",
    "time-limit": "minutes, HH:MM:SS or D-HH:MM:SS",
}
"""Flags of a field each; ``-`` stands for ``_``."""

KUBERNETES_FIELDS = {
    "kubeconfig": "the file with clusters and users; default: KUBECONFIG, else ~/.kube/config",
    "context": "the context of that file",
    "namespace": "the namespace of its jobs' objects",
    "image": "the image of its jobs' pods, with Python 3.11 or newer",
    "queue": "the queue of Kueue that its jobs wait in",
    "shm-size": "the size of /dev/shm in a pod, such as 8G",
}

COMMON = {
    "max-instances": "the maximum number of nodes of one job",
    "tier": "dedicated, or low_priority: every job is spot",
}
IGNORED = {
    "min-instances": (),
    "idle-time-before-scale-down": ("-d",),
    "location": ("-l",),
    "ssh-public-access-enabled": ("-p",),
    "admin-username": (),
    "admin-password": (),
    "ssh-key-value": (),
    "identity-type": (),
    "user-assigned-identities": ("-i",),
    "user-object-id": (),
    "user-tenant-id": (),
    "subnet": (),
    "vnet-name": (),
    "enable-node-public-ip": (),
}
"""Flags of ``az ml compute create`` without a meaning here: each gets a warning."""


REFUSED = ("resource-id", "ssh-port", "ssh-private-key-file")
"""Flags of ``attach`` and ``create`` for computes of Azure's other types, which are refused by their type."""


def _attach_arguments(parser: Parser) -> None:
    add_name(parser, "compute")
    parser.add_argument(
        "-t", "--type", type=str.lower, metavar="TYPE", help="slurm, kubernetes, local or amlcompute"
    )
    parser.add_argument("-f", "--file", help="the compute's file; - for standard input")
    add_set(parser, "priorities.high.qos=urgent")
    parser.add_argument("--size", help="a name for resources.instance_type")
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="attach nothing; print the least Role that jobs on Kubernetes need, for kubectl apply",
    )
    for flag in REFUSED:
        parser.add_argument(f"--{flag}", help=argparse.SUPPRESS)
    _add_fields(parser)


def _add_fields(parser: Parser) -> None:
    """Add the fields that ``attach`` and ``update`` share."""
    for flag, text in (SLURM_FIELDS | KUBERNETES_FIELDS | COMMON).items():
        parser.add_argument(f"--{flag}", help=text)
    parser.add_argument(
        "--sbatch-option",
        action="append",
        dest="sbatch_options",
        metavar="OPTION",
        help="--sbatch-option=--constraint=a100; can be repeated",
    )
    parser.add_argument("--requeue", action=argparse.BooleanOptionalAction, help="let Slurm requeue its jobs")
    parser.add_argument("--description")
    parser.add_argument("--tags", nargs="+", metavar="NAME=VALUE")
    parser.add_argument(
        "--no-check", action="store_true", help="do not check that it can be used from this machine"
    )
    parser.add_argument("--no-wait", action="store_true", help=argparse.SUPPRESS)
    for flag, short in IGNORED.items():
        parser.add_argument(*short, f"--{flag}", help=argparse.SUPPRESS)
    add_output(parser)


# show, list, list-nodes


def _show_arguments(parser: Parser) -> None:
    add_name(parser, "compute")
    add_output(parser)


def _list_arguments(parser: Parser) -> None:
    parser.add_argument(
        "-t", "--type", type=str.lower, help="only computes of this type: slurm, kubernetes or local"
    )
    parser.add_argument("-r", "--max-results", type=int, help="default: all")
    add_output(parser)


# update, detach, delete


def _update_arguments(parser: Parser) -> None:
    add_name(parser, "compute")
    parser.add_argument("--set", action="extend", nargs="+", default=[], metavar="PATH=VALUE")
    parser.add_argument("--remove", action="extend", nargs="+", default=[], metavar="PATH")
    parser.add_argument("--add", action="extend", nargs="+", default=[], help=argparse.SUPPRESS)
    parser.add_argument("--force-string", action="store_true", help=argparse.SUPPRESS)
    _add_fields(parser)


def _detach_arguments(parser: Parser) -> None:
    add_name(parser, "compute")
    parser.add_argument("-y", "--yes", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--no-wait", action="store_true", help=argparse.SUPPRESS)


def _detach(arguments: Namespace) -> int:
    computes.detach(get_name(arguments, "compute"))
    return 0


VERBS: Verbs = {
    "attach": (
        "attach a cluster or this machine under a name that jobs can use",
        _attach_arguments,
        "compute_actions.attach_compute",
    ),
    "create": ("the same as attach", _attach_arguments, "compute_actions.attach_compute"),
    "show": ("show a compute's settings and current state", _show_arguments, "compute_actions.show_compute"),
    "list": ("list computes", _list_arguments, "compute_actions.list_computes"),
    "list-nodes": ("list a compute's nodes and their state", _show_arguments, "compute_actions.list_nodes"),
    "update": (
        "change settings; submitted jobs keep theirs",
        _update_arguments,
        "compute_actions.update_compute",
    ),
    "detach": ("detach a compute; its jobs continue", _detach_arguments, _detach),
    "delete": ("the same as detach", _detach_arguments, _detach),
}
