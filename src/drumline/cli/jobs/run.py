"""
``drumline run``: a program on several nodes, attached, without a job file.

This module forks the job's supervisor before the command line imports anything else, so that both import their own
modules at the same time.
"""

from __future__ import annotations

from drumline.cli.jobs.standby import Standby

_FORKED_LATER = ("-h", "--h", "--c", "--e", "--se", "--w", "-w")
"""
Beginnings of options with which the supervisor is forked later, if at all: help, another compute, values of variables
(they are erased from the command line first), and a workspace.
"""


def main(argv: list[str]) -> int:
    """Run the command, and return its exit code."""
    own = argv[: argv.index("--")] if "--" in argv else argv
    standby = None if any(word.startswith(_FORKED_LATER) for word in own) else Standby()
    from drumline.cli.jobs import run_command

    try:
        return run_command.main(argv, standby)
    finally:
        if standby:
            standby.dismiss()
