"""
One process that runs mini-batches: ``worker.py DESCRIPTOR ENTRY_SCRIPT ARGUMENT...``.

It loads the user's script, calls ``init()`` once, ``run(mini_batch)`` for each mini-batch that comes through the
descriptor as a line of JSON, and ``shutdown()`` at the end. A program for the user's own Python: it imports the
standard library alone, and keeps to the syntax of Python 3.9.
"""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import io
import json
import logging
import os
import socket
import sys
import traceback
from types import ModuleType, SimpleNamespace
from typing import Any, Callable, NoReturn

LEVEL = "DRUMLINE_PARALLEL_LEVEL"


def main(descriptor: int, script: str, arguments: list[str]) -> None:
    os.set_inheritable(descriptor, False)
    channel = socket.socket(fileno=descriptor)
    # What a script forks may outlive this process, whose end the manager sees by the end of the channel.
    os.register_at_fork(after_in_child=lambda: close_channel(channel))
    write_whole_lines()
    logging.basicConfig(level=os.environ.pop(LEVEL, "INFO"))
    sys.argv = [script, *arguments]
    # Of the script, as where it is run by itself; our own folder has nothing for it.
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    try:
        module = load_script(script)
    except Exception as error:  # noqa: BLE001 - whatever a script raises
        stop_with_error(channel, error, f"{script} cannot be loaded")
    if not callable(getattr(module, "run", None)):
        send_message(channel, {"kind": "broken", "error": f"{script} has no function run(mini_batch)"})
        sys.exit(1)
    if callable(getattr(module, "init", None)):
        try:
            module.init()
        except Exception as error:  # noqa: BLE001 - whatever a script raises
            stop_with_error(channel, error, "init() failed")
    call = make_caller(module.run)
    send_message(channel, {"kind": "ready"})
    for line in channel.makefile("rb"):
        message = json.loads(line)
        if message["kind"] == "end":
            break
        send_message(channel, run_batch(call, message["batch"], message["items"], message["keeps"]))
    if callable(getattr(module, "shutdown", None)):
        try:
            module.shutdown()
        except Exception as error:  # noqa: BLE001 - whatever a script raises
            print_error(error)
            sys.exit(1)


def write_whole_lines() -> None:
    """Write a line with its end at once: ``print`` writes them one by one where PYTHONUNBUFFERED is set."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True, write_through=False)


def stop_with_error(channel: socket.socket, error: Exception, what: str) -> NoReturn:
    """End before the first mini-batch, and tell the manager why."""
    print_error(error)
    with contextlib.suppress(OSError):  # What the script has forked has no channel.
        send_message(channel, {"kind": "broken", "error": f"{what}: {describe_error(error)}"})
    sys.exit(1)


def close_channel(channel: socket.socket) -> None:
    """Close the channel in this process, whoever else still refers to it."""
    descriptor = channel.detach()
    if descriptor >= 0:
        os.close(descriptor)


def load_script(script: str) -> ModuleType:
    """Load the user's script as a module under its own name, so that its objects can be pickled."""
    name = os.path.splitext(os.path.basename(script))[0]
    spec = importlib.util.spec_from_file_location(name, script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def make_caller(run: Callable[..., Any]) -> Callable[[int, list[str]], Any]:
    """Return a function that calls ``run``, which may take a second argument that tells of the mini-batch."""
    # The names in annotations may be unknown, and Python 3.14 looks them up only now, unless told not to: it is 3 of
    # annotationlib.Format, FORWARDREF.
    as_written: dict[str, Any] = {"annotation_format": 3} if sys.version_info >= (3, 14) else {}
    try:
        count = len(inspect.signature(run, **as_written).parameters)
    except (TypeError, ValueError):
        count = 1
    if count < 2:
        return lambda batch, items: run(items)
    return lambda batch, items: run(items, SimpleNamespace(minibatch_index=batch, partition_key_value={}))


def run_batch(
    call: Callable[[int, list[str]], Any], batch: int, items: list[str], keeps: bool
) -> dict[str, Any]:
    """Run a mini-batch and return the result; ``keeps``: whether the rows are wanted, and not their count alone."""
    try:
        count, rows = read_rows(call(batch, items))
    except Exception as error:  # noqa: BLE001 - whatever a script raises fails its mini-batch
        print_error(error)
        return {"kind": "failed", "error": describe_error(error)}
    return {"kind": "done", "count": count, "rows": rows if keeps else []}


def read_rows(result: Any) -> tuple[int, list[str]]:
    """
    Return the number of items and the lines of a result. Raises TypeError for no list, tuple, array or data frame.
    """
    if hasattr(result, "to_csv") and hasattr(result, "columns"):
        # As Azure appends a data frame.
        text = result.to_csv(sep=" ", header=False, index=False)
        return len(result), text.splitlines()
    if result is None or isinstance(result, (str, bytes, dict)) or not hasattr(result, "__len__"):
        what = f"run() returned {type(result).__name__}; it must return a list, a tuple or a data frame"
        raise TypeError(what + ", with an item for each item that it has processed")
    return len(result), [str(item) for item in result]


def print_error(error: Exception) -> None:
    """Write its traceback without our own frames, and at once, so that other workers write before or after it."""
    trace = error.__traceback__
    while trace is not None and is_own_frame(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    sys.stderr.write("".join(traceback.format_exception(type(error), error, trace)))
    sys.stderr.flush()


def is_own_frame(file: str) -> bool:
    """Return whether a file is this program, or the importer that it loads the script with."""
    return file == __file__ or file.startswith("<frozen importlib")


def describe_error(error: BaseException) -> str:
    """Return ``ValueError: bad image (score.py:12, in run)``, in one line."""
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if not is_own_frame(frame.filename)]
    where = ""
    if isinstance(error, SyntaxError):
        where = f" ({os.path.basename(error.filename or '?')}:{error.lineno})"
        what = f"{type(error).__name__}: {error.msg}"
    else:
        what = "".join(traceback.format_exception_only(type(error), error))
        if own:
            where = f" ({os.path.basename(own[-1].filename)}:{own[-1].lineno}, in {own[-1].name})"
    return " ".join(what.split()) + where


def send_message(channel: socket.socket, message: dict[str, Any]) -> None:
    channel.sendall(json.dumps(message).encode() + b"\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
