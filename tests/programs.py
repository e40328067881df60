"""Programs that are written by tests, run by this Python wherever that is."""

import shlex
import sys


def first_lines() -> str:
    """In the place of ``#!``, which cannot hold a path with a blank: they start Python, to which they are text."""
    return f"#!/bin/sh\n''':'\nexec {shlex.quote(sys.executable)} \"$0\" \"$@\"\n'''\n"
