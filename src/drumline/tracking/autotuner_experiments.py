"""
The experiments of DeepSpeed's autotuner: a folder for each, with its configuration and its measurements.

Read without DeepSpeed, and whoever started it. A job can write anything there, so the number of folders and the size of
a file are limited.

Source: https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/autotuning/scheduler.py (the files of a folder).
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

from drumline.contract.folder import open_plain
from drumline.tracking.metrics import Point

if TYPE_CHECKING:
    from collections.abc import Iterator

RESULTS = "autotuning_results"
"""Where the autotuner writes, in its working folder, unless its configuration has another ``results_dir``."""

_DESCRIPTION = "exp.json"
_MEASUREMENTS = "metrics.json"
_DEEPEST = 3
_MOST_ENTRIES = 5000
_MOST_BYTES = 1 << 16
_MOST_NUMBER = 1 << 31
_NO_METRICS = frozenset({"rank"})


def read_experiments(folder: str) -> dict[tuple[str, str], Point]:
    """
    Return the measurements beneath that folder by experiment and name: ``("z1_gas1_tmbspg8", "throughput")``. The step
    of each is the number that the autotuner gave to the experiment.

    Never raises: an experiment that cannot be read has none.
    """
    found = {}
    for path in sorted(_list_experiments(folder)):
        experiment = os.fsencode(os.path.basename(os.path.dirname(path))).decode("utf-8", "replace")
        for name, point in _read(path, _read_number(os.path.dirname(path))):
            found[experiment, name] = point
    return found


def _read_number(folder: str) -> int:
    """Return the autotuner's number of an experiment; 0: unknown."""
    try:
        with open_plain(os.path.join(folder, _DESCRIPTION)) as file:
            data = json.loads(file.read(_MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return 0
    number = data.get("exp_id") if isinstance(data, dict) else 0
    return number if type(number) is int and 0 <= number < _MOST_NUMBER else 0


def _read(path: str, number: int) -> Iterator[tuple[str, Point]]:
    try:
        with open_plain(path) as file:
            changed_ms = int(os.fstat(file.fileno()).st_mtime * 1000)
            data = json.loads(file.read(_MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return
    for name, value in data.items() if isinstance(data, dict) else ():
        is_number = isinstance(value, float) or (type(value) is int and abs(value) <= sys.float_info.max)
        if is_number and name not in _NO_METRICS:
            yield name, Point(number, changed_ms, float(value))


def _list_experiments(folder: str) -> Iterator[str]:
    """
    Yield the files of measurements that lie beside the description of an experiment; links are not followed. The usual
    place first: a training may write much beside it.
    """
    usual = os.path.join(folder, RESULTS)
    yield from _list_below(usual, 1, "")
    yield from _list_below(folder, 0, usual)


def _list_below(folder: str, depth: int, left_out: str) -> Iterator[str]:
    left = _MOST_ENTRIES
    folders = [(folder, depth)]
    while folders:
        place, depth = folders.pop()
        names = set()
        try:
            with os.scandir(place) as entries:
                for entry in entries:
                    left -= 1
                    if left < 0:
                        return
                    if entry.path == left_out:
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        folders += [(entry.path, depth + 1)] if depth < _DEEPEST else []
                    elif entry.is_file(follow_symlinks=False):
                        names.add(entry.name)
        except OSError:
            continue
        if {_DESCRIPTION, _MEASUREMENTS} <= names:
            yield os.path.join(place, _MEASUREMENTS)
