"""``drumline job cancel`` and ``preempt``."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from drumline.cli.arguments import Parser, add_name, get_name
from drumline.control.jobs import lookup, recovery
from drumline.control.jobs.cancel import cancel
from drumline.control.jobs.outcome import explain_stop
from drumline.control.jobs.preempt import preempt
from drumline.control.jobs.waiting import wait_for_end
from drumline.control.terminal import clean

if TYPE_CHECKING:
    from argparse import Namespace

_EXPLAIN_AFTER_S = 2.0
"""How long a job may take to end before we ask why."""


def _cancel_arguments(parser: Parser) -> None:
    add_name(parser, "job")
    parser.add_argument("--at-once", action="store_true", help="kill its ranks without a grace period")
    parser.add_argument("--no-wait", action="store_true", help="return without waiting for its end")


def _cancel(arguments: Namespace) -> int:
    name = get_name(arguments, "job", "canceling", is_final=True)
    asked = cancel(name, at_once=arguments.at_once)
    if asked and not arguments.no_wait:
        folder = lookup.folder_of(name)
        if not wait_for_end(folder, time.monotonic() + _EXPLAIN_AFTER_S):
            why = explain_stop(folder)
            if why:
                print(f"job {name} cannot end: {why}", file=sys.stderr)
            wait_for_end(folder)
    return _print_status(name)


def _preempt_arguments(parser: Parser) -> None:
    add_name(parser, "job")
    parser.add_argument("--node", type=int, help="only this node; default: all nodes of the job")
    parser.add_argument("--no-wait", action="store_true", help="return without waiting for its ranks to end")


def _preempt(arguments: Namespace) -> int:
    name = get_name(arguments, "job", "preempting", is_final=True)
    attempt = preempt(name, arguments.node)
    if not arguments.no_wait:
        wait_for_end(lookup.folder_of(name), of_attempt=attempt)
    outcome = recovery.recover(lookup.folder_of(name))
    if len(outcome.attempts) <= attempt:
        _print_status(name)
        return 1 if outcome.is_final else 0
    ended = outcome.attempts[attempt]
    print(clean(f"job {name}: {ended.reason}; it is {outcome.status}"), file=sys.stderr)
    return 0 if ended.was_preempted else 1


def _print_status(name: str) -> int:
    outcome = recovery.recover(lookup.folder_of(name))
    reason = f": {outcome.reason}" if outcome.reason else ""
    print(clean(f"job {name} is {outcome.status}{reason}"), file=sys.stderr)
    return 0


VERBS = {"cancel": (_cancel_arguments, _cancel), "preempt": (_preempt_arguments, _preempt)}
