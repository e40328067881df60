"""``drumline drill``: make a failure on purpose in a job that runs."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from drumline.cli.arguments import Parser, add_azure, enter_workspace, find_job
from drumline.contract.drill_kinds import END, KINDS, DrillRequest
from drumline.control.terminal import clean
from drumline.control.times import parse_duration

if TYPE_CHECKING:
    from argparse import Namespace

_SETTINGS = ("between", "rate", "latency", "loss", "cpus", "limit")
_BEGIN_LIMIT_S = 30.0
"""For a supervisor to begin a drill that is to begin at once."""


def main(argv: list[str]) -> int:
    kinds = "\n".join(f"  {name:<12} {kind.text}" for name, kind in KINDS.items())
    parser = Parser(
        prog="drumline drill",
        description="Make a failure on purpose in a job that runs, to see whether it survives. "
        "The drill is in the job's log and beside its verdict.",
        epilog=f"kinds:\n{kinds}\n  {END:<12} ends all drills of the job",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("job", metavar="NAME", help="the job's name, a unique beginning of it, or @last")
    parser.add_argument("kind", metavar="KIND", choices=[*KINDS, END], help="what is to happen; see below")
    parser.add_argument("--node", type=int, metavar="N", help="the node, from 0")
    parser.add_argument("--rank", type=int, metavar="N", help="the rank; of kill-rank and wedge")
    parser.add_argument(
        "--for", dest="length", metavar="TIME", help="end it after 20s; default: with its attempt"
    )
    begin = parser.add_mutually_exclusive_group()
    begin.add_argument(
        "--after", metavar="TIME", help="begin it 30s from now, and from the start of the ranks"
    )
    begin.add_argument(
        "--at-step", type=int, metavar="N", help="begin it when a metric of that step is logged"
    )
    settings = parser.add_argument_group("settings of some kinds")
    settings.add_argument("--between", metavar="NODES/NODES", help="partition: the groups, as 0,1/2,3")
    settings.add_argument("--rate", help="slow-link: default 1mbit")
    settings.add_argument("--latency", help="slow-link: such as 100ms")
    settings.add_argument("--loss", help="lossy-link: default 20%%")
    settings.add_argument("--cpus", help="slow-cpu: so many processors' time; default 0.1")
    settings.add_argument("--limit", metavar="SIZE", help="memory: such as 200MiB")
    parser.add_argument("--no-wait", action="store_true", help="return without waiting for it to begin")
    add_azure(parser)
    arguments = parser.parse_args(argv)
    with enter_workspace(arguments.workspace_name):
        return _drill(arguments)


def _drill(arguments: Namespace) -> int:
    from drumline.control.jobs import drill_requests
    from drumline.control.jobs.lookup import folder_of

    name = find_job(arguments.job, "drilling", is_final=True)
    wanted = DrillRequest(
        "",
        arguments.kind,
        "",
        arguments.node,
        arguments.rank,
        parse_duration(arguments.length, "--for") if arguments.length else None,
        parse_duration(arguments.after, "--after") if arguments.after else None,
        arguments.at_step,
        {key: value for key in _SETTINGS if (value := getattr(arguments, key)) is not None},
    )
    drill = drill_requests.ask(name, wanted)
    if arguments.kind == END or arguments.no_wait or arguments.after or arguments.at_step is not None:
        what = "the end of its drills" if arguments.kind == END else f"drill {arguments.kind!r}"
        print(clean(f"job {name}: asked for {what}"), file=sys.stderr)
        return 0
    begun = drill_requests.wait_for_begin(folder_of(name), drill, _BEGIN_LIMIT_S)
    if begun is None:
        print(
            clean(f"job {name}: drill {arguments.kind!r} has not begun; drumline job show has why"),
            file=sys.stderr,
        )
        return 1
    print(clean(f"job {name}: {drill_requests.describe_drill(begun)}, has begun"), file=sys.stderr)
    return 0
