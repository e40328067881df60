"""``drumline mlflow``: MLflow's web pages over the runs of this state directory or workspace."""

from __future__ import annotations

import sys

from drumline.cli.arguments import Parser, add_workspace, enter_workspace


def main(argv: list[str]) -> int:
    parser = Parser(
        prog="drumline mlflow",
        description="Show what jobs have logged in MLflow's own web pages, while they run and after. Ctrl-C ends it.",
    )
    parser.add_argument("--port", type=int, default=0, metavar="N", help="default: one that is free")
    parser.add_argument("--python", default="", metavar="PATH", help="a Python that has the package mlflow")
    add_workspace(parser)
    arguments = parser.parse_args(argv)
    from drumline.control.access import boards
    from drumline.control.settings import tracking

    with enter_workspace(arguments.workspace_name):
        server = tracking.read_configured_uri()
        if server:
            print(f"new jobs log to {server}; these are the runs in files", file=sys.stderr)
        with boards.serve_mlflow(arguments.port, arguments.python) as address:
            print(address, flush=True)
            print("press Ctrl-C to end it; other users of this machine can open it too", file=sys.stderr)
            boards.wait_for_interrupt("MLflow")
    return 0
