"""What happens between two steps of a copy: callbacks when a path is opened, by the interpreter's own audit events."""

import os
import sys

import pytest

from drumline.staging import file_copy

_callbacks = []


def _hook(event, arguments):
    if event in ("open", "os.scandir", "os.link") and _callbacks:
        for callback in tuple(_callbacks):
            callback(event, arguments)


sys.addaudithook(_hook)  # There is no way to take it away again: it does nothing when nobody asks.


@pytest.fixture
def on_open():
    """``on_open(path, what, times)``: do ``what`` just before the path is opened for reading, that often at most."""

    def install(path, what, times=1_000_000):
        left = [times]

        def callback(event, arguments):
            is_read = event == "open" and not arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_PATH)
            if is_read and arguments[0] == str(path) and left[0]:
                left[0] -= 1
                held, _callbacks[:] = _callbacks[:], []
                try:
                    what()
                finally:
                    _callbacks[:] = held

        _callbacks.append(callback)

    yield install
    _callbacks.clear()


@pytest.fixture
def opened():
    """The paths of all files and folders that are opened from here on, and "link" for each hard link."""
    paths = []

    def callback(event, arguments):
        paths.append("link" if event == "os.link" else arguments[0])

    _callbacks.append(callback)
    yield paths
    _callbacks.clear()


@pytest.fixture
def settled(monkeypatch):
    """Files that were just written are believed not to change again: time stamps of changes cannot be set."""
    monkeypatch.setattr(file_copy, "SETTLED_S", -60.0)
