"""``drumline job rerun``: an earlier job once more, from what was stored of it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from drumline.cli import hide, output
from drumline.cli.arguments import Parser, add_output, add_set, find_job, parse_overrides
from drumline.cli.jobs.standby import Standby
from drumline.contract.errors import UsageError
from drumline.control.terminal import clean

if TYPE_CHECKING:
    from argparse import Namespace


def _add_arguments(parser: Parser) -> None:
    text = "the earlier job: its name, a unique beginning of it, @last, -, or PIPELINE/STEP"
    parser.add_argument("given", nargs="?", metavar="NAME", help=text)
    parser.add_argument("-n", "--name", help="the name of the new job; default: a generated one")
    add_set(parser, "inputs.lr=0.01")
    parser.add_argument("--compute", metavar="NAME", help="run on this compute; default: the same as then")
    parser.add_argument(
        "--code",
        choices=("then", "now"),
        help="the code as it was stored then, or as it is now; default: then, or now if it was not stored",
    )
    parser.add_argument("-s", "--stream", action="store_true", help="show its logs until it ends")
    add_output(parser)


def _rerun(arguments: Namespace) -> int:
    from drumline.cli.jobs.job import follow_job
    from drumline.control.jobs import naming
    from drumline.control.observing import description
    from drumline.control.submission.planning import is_local
    from drumline.control.submission.rerun import prepare_rerun
    from drumline.control.submission.submit import submit

    # As every other verb takes it, -n alone is the job itself.
    word, new_name = arguments.given or arguments.name, arguments.name if arguments.given else None
    if not word:
        raise UsageError("a job's name is missing", "drumline job rerun NAME")
    hide.hide_set_values(arguments.set)
    changes = parse_overrides(arguments.set)
    name = find_job(word)
    reused = naming.explain_reused(word)
    again = prepare_rerun(name, changes, compute=arguments.compute, code=arguments.code, new_name=new_name)
    for note in filter(None, (reused, *again.notes)):
        print(f"note: {clean(note)}", file=sys.stderr)
    start = Standby() if again.job.type == "command" and is_local(again.job) else None
    try:
        submitted = submit(again.job, again.run, start=start)
    finally:
        if start:
            start.dismiss()
    if again.run.in_place and not (again.job.drumline or {}).get(
        "secrets"
    ):  # Whose files may lie in the folder.
        from drumline.control.jobs import stored_code

        stored_code.store_code(submitted.folder, again.run.in_place)
    output.print_warnings(submitted.warnings)
    explicit = arguments.output or arguments.query
    code = 0
    if arguments.stream:
        code = follow_job(submitted.name, sys.stderr if explicit else sys.stdout)
    if explicit or not arguments.stream:
        output.show(description.show_job(submitted.name), arguments.output, arguments.query)
    return code


VERBS = {"rerun": (_add_arguments, _rerun)}
