"""Verbs of ``drumline job`` that submit a job: ``create`` and ``rerun``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from drumline.cli import output
from drumline.cli.arguments import (
    find_job,
    hide_overrides,
    load_job_file,
    name_experiment,
    parse_overrides,
    set_ways_to_run,
)
from drumline.cli.jobs.standby import Standby
from drumline.contract.errors import UsageError
from drumline.control.facts import description
from drumline.control.submission.planning import is_local, slow_code
from drumline.control.submission.submit import submit
from drumline.control.terminal import clean

if TYPE_CHECKING:
    from argparse import Namespace
    from typing import TextIO


def create(arguments: Namespace) -> int:
    slow_code.set(_print_slow)
    job = load_job_file(arguments.file, arguments.set)
    job.name = arguments.name or job.name
    set_ways_to_run(job, arguments)
    name_experiment(job)
    # Elsewhere the job's supervisor is not this machine's, and a pipeline or sweep has a driver.
    start = Standby() if job.type == "command" and is_local(job) else None
    try:
        submitted = submit(job, start=start, check=not arguments.skip_validation)
    finally:
        if start:
            start.dismiss()
    output.print_warnings(submitted.warnings)
    if arguments.save_as:
        job.dump(arguments.save_as, overwrite=True)
    if arguments.web:
        from drumline.cli.views.show import open_web_view

        open_web_view(submitted.name)
    explicit = arguments.output or arguments.query
    code = 0
    if arguments.stream:
        code = _follow(submitted.name, sys.stderr if explicit else sys.stdout)
    if explicit or not arguments.stream:
        if output.is_for_people(arguments.output, arguments.query):
            from drumline.cli.views.page import print_page

            print_page(submitted.name)
        else:
            output.show(description.show_job(submitted.name), arguments.output, arguments.query)
    return code


def _follow(name: str, out: TextIO) -> int:
    from drumline.cli.jobs.following import follow_job

    return follow_job(name, out)


def _print_slow(file_count: int) -> None:
    if sys.stderr.isatty():
        hint = "list what to leave out in .amlignore"
        print(f"copying the code: {file_count:,} files so far; {hint}", file=sys.stderr)


def rerun(arguments: Namespace) -> int:
    from drumline.control.jobs import naming, stored_code
    from drumline.control.submission.rerun import prepare_rerun

    # As every other verb takes it, -n alone is the job itself.
    word, new_name = arguments.given or arguments.name, arguments.name if arguments.given else None
    if not word:
        raise UsageError("a job's name is missing", "drumline job rerun NAME")
    hide_overrides(arguments.set)
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
        stored_code.store_code(submitted.folder, again.run.in_place)
    output.print_warnings(submitted.warnings)
    explicit = arguments.output or arguments.query
    code = 0
    if arguments.stream:
        code = _follow(submitted.name, sys.stderr if explicit else sys.stdout)
    if explicit or not arguments.stream:
        output.show(description.show_job(submitted.name), arguments.output, arguments.query)
    return code
