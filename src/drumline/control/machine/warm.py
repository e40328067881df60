"""
The warm interpreters of this machine and home, as a person looks after them.

Whoever holds them listens at ``<base home>/warm/<host>/<kind>-<version>/socket``: a line of JSON in, one out.
"""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Any

from drumline.contract import process_identity, words
from drumline.contract.errors import NodeError, NotFoundError
from drumline.contract.folder import base_home
from drumline.contract.record import NamedTuple
from drumline.contract.words import format_duration
from drumline.linux import cgroups
from drumline.node.warm import pool_folder

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

PATIENCE_S = 10.0
"""For one answer."""

_KIND = r"[0-9a-f]{8}(-[0-9a-f]{8})?"
_LONGEST_ANSWER = 16 << 20
_MODULES_SHOWN = 4


class HeldInterpreter(NamedTuple):
    """A warm interpreter: first for people, then the same in numbers. ``keeper``: the process that holds it."""

    pid: int | None
    program: str
    python: str
    imported: str
    memory: str | None
    age: str
    idle: str
    used: int | None
    modules: list[str]
    import_s: float | None
    memory_bytes: int | None
    age_s: float | None
    idle_s: float | None
    idle_limit_s: float | None
    users: int | None
    keeper: int | None


def warm_interpreters(base: str = "") -> list[HeldInterpreter]:
    """
    List the warm interpreters, used last first. ``base``: a base home; empty: that of the surroundings.

    Raises NodeError where a warm pool does not answer.
    """
    found = []
    for answer in _all({"do": "list"}, base):
        limit = _number(answer.get("idle_limit_s"))
        held = answer.get("warm")
        known = [one for one in held if isinstance(one, dict)] if isinstance(held, list) else []
        found += [_describe(one, answer.get("pid"), limit) for one in known]
    return sorted(found, key=lambda one: (one.idle_s or 0.0, one.age_s or 0.0))


def stop(pid: int | None = None, base: str = "") -> list[int]:
    """
    End one, or all of them and who holds them; ranks that run already go on. The numbers of those that were ended.

    Raises NotFoundError where there is no such one, NodeError.
    """
    stopped = []
    for answer in _all({"do": "stop", "pid": pid}, base):
        ended = answer.get("stopped")
        stopped += [one for one in ended if type(one) is int] if isinstance(ended, list) else []
    if pid is not None and pid not in stopped:
        raise NotFoundError(f"there is no warm interpreter {pid}", "drumline warm list shows those there are")
    return sorted(stopped)


def _describe(one: dict[str, Any], keeper: int | None, limit: float | None) -> HeldInterpreter:
    modules = [str(name) for name in one.get("modules") or ()]
    memory, age, idle = (_number(one.get(name)) for name in ("memory_bytes", "age_s", "idle_s"))
    size = None if memory is None else int(memory)
    return HeldInterpreter(
        *(one.get("pid"), str(one.get("program") or ""), str(one.get("python") or "")),
        imported=", ".join(modules[:_MODULES_SHOWN] + ["..."] * (len(modules) > _MODULES_SHOWN)),
        memory=None if size is None else words.format_size(size),
        age=format_duration(age),
        idle="in use" if idle is None else format_duration(idle),
        used=one.get("ranks"),
        modules=modules,
        import_s=_number(one.get("import_s")),
        memory_bytes=size,
        age_s=age,
        idle_s=idle,
        idle_limit_s=limit,
        users=one.get("users"),
        keeper=keeper,
    )


def _number(value: object) -> float | None:
    is_one = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_one and 0 <= value < float("inf") else None  # type: ignore[arg-type, operator]


# asking


def _all(request: dict[str, Any], base: str) -> Iterator[dict[str, Any]]:
    """Yield the answers of all live warm pools."""
    top = os.path.join(base or base_home(), "warm", process_identity.name_machine())
    for kind in cgroups.list_folder(top):
        if re.fullmatch(_KIND, kind):
            answer = _ask(os.path.join(top, kind), request)
            if answer is not None:
                yield answer


def _ask(folder: str, request: dict[str, Any]) -> dict[str, Any] | None:
    """Ask a warm pool; None if it is gone or not ours. Raises NodeError."""
    try:
        with pool_folder.connect_to_pool(folder, PATIENCE_S) as peer:
            peer.sendall(json.dumps(request).encode() + b"\n")
            text = _line(peer)
    except (FileNotFoundError, NotADirectoryError, PermissionError, ConnectionError):
        return None
    except OSError as error:
        raise NodeError(f"what holds the warm interpreters of {folder} does not answer: {error}") from error
    if not text:  # it ended meanwhile
        return None
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise NodeError(f"what holds the warm interpreters of {folder} does not answer in JSON") from error
    return answer if isinstance(answer, dict) else None


def _line(peer: socket.socket) -> bytes:
    """Read a line. Raises OSError for one that is too long."""
    text = bytearray()
    while not text.endswith(b"\n"):
        part = peer.recv(1 << 16)
        if not part:
            break
        text += part
        if len(text) > _LONGEST_ANSWER:
            raise OSError("its answer is too long")
    return bytes(text)
