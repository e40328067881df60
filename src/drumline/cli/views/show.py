"""``drumline job show`` and ``show-services``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from drumline.cli import output
from drumline.cli.arguments import Parser, add_name, add_output, get_name
from drumline.contract.errors import UsageError

if TYPE_CHECKING:
    from argparse import Namespace


def _show_arguments(parser: Parser) -> None:
    add_name(parser, "job")
    parser.add_argument(
        "-e",
        "--web",
        action="store_true",
        help="open its page in a studio that runs; without one, print the path of its run folder",
    )
    parser.add_argument(
        "--timeline", action="store_true", help="show how it started, and how long each phase took"
    )
    parser.add_argument(
        "--attempt",
        type=int,
        help="with --timeline: the attempt, from 0, as messages count them; default: the latest",
    )
    add_output(parser)


def _show(arguments: Namespace) -> int:
    if arguments.timeline:
        if arguments.web:
            raise UsageError("--timeline and --web exclude each other")
        return _show_timeline(arguments)
    if arguments.attempt is not None:
        raise UsageError("--attempt needs --timeline", "add --timeline")
    return show_job(arguments)


def _show_timeline(arguments: Namespace) -> int:
    from drumline.control.jobs.lookup import folder_of
    from drumline.control.jobs.recovery import recover
    from drumline.control.observing import timeline, timeline_text

    name = get_name(arguments, "job")
    recover(folder_of(name))
    told = timeline.describe_start(name, arguments.attempt)
    if arguments.output not in (None, "table") or arguments.query:
        output.show(told, arguments.output, arguments.query)
        return 0
    print(timeline_text.render(told), end="")
    return 0


def show_job(arguments: Namespace) -> int:
    """Show the job that ``add_name`` took."""
    name = get_name(arguments, "job")
    if arguments.web:
        open_web_view(name)
    if output.is_for_people(arguments.output, arguments.query):
        print_page(name)
    else:
        from drumline.control.facts import description

        output.show(description.show_job(name), arguments.output, arguments.query)
    return 0


def open_web_view(name: str) -> None:
    """Open the job's page in a studio that runs, else print the path of its run folder. Raises NotFoundError."""
    from drumline.contract.folder import current_workspace
    from drumline.control.access import browser
    from drumline.control.jobs.lookup import folder_of

    folder = folder_of(name)
    if not browser.show_job(folder.name, current_workspace()):
        print(f"file://{folder.path}", file=sys.stderr)


def print_page(name: str) -> None:
    """Print the page of a job, for people. Raises NotFoundError."""
    from drumline.cli.columns import PAGE_WIDTH, terminal_width
    from drumline.cli.pager import print_text
    from drumline.cli.views.page import format_page
    from drumline.control.facts.job import read_facts

    width = terminal_width(PAGE_WIDTH) if sys.stdout.isatty() else PAGE_WIDTH
    print_text("".join(line + "\n" for line in format_page(read_facts(name), width)))


def _services_arguments(parser: Parser) -> None:
    add_name(parser, "job")
    parser.add_argument("-i", "--node-index", type=int, default=0, help="the node; default 0")
    add_output(parser)


def _show_services(arguments: Namespace) -> int:
    from drumline.control.facts import description

    output.show(description.show_services(get_name(arguments, "job")), arguments.output, arguments.query)
    return 0


VERBS = {"show": (_show_arguments, _show), "show-services": (_services_arguments, _show_services)}
