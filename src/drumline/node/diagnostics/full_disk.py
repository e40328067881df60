"""Files that could not be written because their disk was full, which not every library says."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from drumline.contract.record import compile_late
from drumline.contract.words import format_size
from drumline.node.diagnostics import failures

if TYPE_CHECKING:
    from collections.abc import Iterable

    from drumline.contract.evidence import NotedException

_FAILED_WRITE = compile_late(
    r"No space left on device"
    # PyTorch's writer of archives, and what C++ says of a stream.
    r"|PytorchStreamWriter failed|inline_container\.cc|iostream error"
    # NumPy's tofile.
    r"|\d+ requested and \d+ written"
)
_SHARED_MEMORY_NAMES = compile_late(r"/dev/shm\b|</torch_\d")  # noqa: S108 - a word of messages
"""The second is PyTorch's name of a tensor there."""

_FULL_BYTES = 1 << 20
"""A write that fails may leave less than a block of it."""


def describe_full_disk(ones: Iterable[NotedException], cwd: str) -> str:
    """
    Return ``the disk of /ckpt has 0 B of 512 MiB free``; empty where the failures are others.

    The file is what PyTorch was saving to, else it may have been anything in the job's folder.
    """
    return next((said for failure in ones if (said := _describe_one(failure, cwd))), "")


def _describe_one(failure: NotedException, cwd: str) -> str:
    said = [failure["message"], *(one["message"] for one in failure.get("chain", []))]
    if not any(_FAILED_WRITE.search(message) for message in said):
        return ""
    folder = os.path.dirname(failure["saved_to"]) if failure.get("saved_to") else cwd
    try:
        found = os.statvfs(folder)
        free, size = (blocks * found.f_frsize for blocks in (found.f_bavail, found.f_blocks))
    except (OSError, ValueError):
        free = size = 0
    if size and free < _FULL_BYTES:
        return f"the disk of {failures.make_printable(folder, 300)} has {format_size(free)} of {format_size(size)} free"
    # An error of a write names no file, and what was in shared memory may be gone by now.
    is_of_shared = any(_SHARED_MEMORY_NAMES.search(message) for message in said)
    return failures.describe_shared_memory(full_only=not is_of_shared)
