"""``drumline tensorboard``: TensorBoard over the event files of jobs, while they run and after."""

from __future__ import annotations

import sys

from drumline.cli.arguments import Parser, add_workspace, enter_workspace, find_job
from drumline.control.terminal import clean


def main(argv: list[str]) -> int:
    parser = Parser(
        prog="drumline tensorboard",
        description="Show the event files of jobs, and of their steps and trials, in TensorBoard. Ctrl-C ends it.",
    )
    parser.add_argument("names", nargs="+", metavar="NAME", help="a job")
    parser.add_argument("--port", type=int, default=0, metavar="N", help="default: one that is free")
    parser.add_argument(
        "--python", default="", metavar="PATH", help="a Python that has the package tensorboard"
    )
    add_workspace(parser)
    arguments = parser.parse_args(argv)
    from drumline.control.access import boards

    with enter_workspace(arguments.workspace_name):
        folders = boards.find_event_folders([find_job(name) for name in arguments.names])
        with boards.serve_tensorboard(folders, arguments.port, arguments.python) as address:
            print(clean(address), flush=True)
            print("press Ctrl-C to end it", file=sys.stderr)
            boards.wait_for_interrupt("TensorBoard")
    return 0
