"""What a command that submits a job file takes beside it, and applies to the job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drumline.cli.arguments import add_python, add_variables, add_warm, set_warm, use_python

if TYPE_CHECKING:
    import argparse


def add_ways_to_run(parser: argparse.ArgumentParser) -> None:
    """Add ``--env-file``, ``--secret``, ``--warm`` and ``--python``."""
    add_variables(parser)
    add_warm(parser, "the file's, else DRUMLINE_WARM, else auto")
    add_python(parser)


def set_ways_to_run(job: Any, arguments: argparse.Namespace) -> None:
    """Apply them to a job. Raises UsageError, NotFoundError, SpecError."""
    use_python(arguments.python)
    if arguments.env_file or arguments.secret:
        from drumline.cli import variables

        variables.set_variables(job, arguments)
    if arguments.warm:
        set_warm(job, arguments.warm)
