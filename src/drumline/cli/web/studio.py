"""``drumline studio``: the jobs as web pages."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from importlib import import_module
from typing import Any

from drumline.cli.arguments import Parser, add_workspace, enter_workspace


def main(argv: list[str]) -> int:
    parser = Parser(
        prog="drumline studio",
        description="Show jobs, their ranks, logs and metrics as web pages. Ctrl-C ends it; jobs go on.",
    )
    parser.add_argument(
        "--port", type=int, metavar="N", help="default: 7878, or the next one that is free; 0: any"
    )
    parser.add_argument("--no-browser", action="store_true", help="do not open a browser")
    parser.add_argument(
        "--host", default="127.0.0.1", metavar="ADDRESS", help="default: 127.0.0.1, for this machine alone"
    )
    parser.add_argument(
        "--name",
        action="append",
        default=[],
        metavar="HOST",
        help="a name under which browsers reach it, as behind a proxy; can be repeated",
    )
    parser.add_argument("--certfile", default="", metavar="FILE", help="serve https with this certificate")
    parser.add_argument("--keyfile", default="", metavar="FILE", help="its key; default: in the same file")
    parser.add_argument(
        "--azure", action="store_true", help="serve azure-ai-ml too, as drumline azure serve does"
    )
    add_workspace(parser)
    arguments = parser.parse_args(argv)
    # No surface knows another, so these are loaded by their names.
    serve: Any = import_module("drumline.studio.serve")
    wish = serve.Wish(
        host=arguments.host,
        port=arguments.port,
        names=tuple(arguments.name),
        certificate=arguments.certfile,
        key=arguments.keyfile,
        opens_browser=not arguments.no_browser,
    )
    with enter_workspace(arguments.workspace_name):
        running = None if arguments.azure else find_running(wish, serve.Wish())
        if running is not None:
            print(running.address, flush=True)
            print("it runs already; another --port starts another", file=sys.stderr)
            from drumline.contract.folder import current_workspace
            from drumline.control.access import browser

            page = running.path_of("", current_workspace())
            browser.open_page(running, page, opens_browser=wish.opens_browser)
            return 0
        beside = import_module("drumline.rest.serving").run_beside() if arguments.azure else nullcontext()
        with beside:
            serve.serve(wish)
    return 0


def find_running(wish: Any, default: Any) -> Any:
    """Return the studio that runs already, where nothing was asked that it might not be."""
    if wish._replace(opens_browser=True, port=default.port) != default:
        return None
    from drumline.control.settings import studios

    return studios.find_running(port=wish.port)
