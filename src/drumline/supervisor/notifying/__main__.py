"""
The process that sends one notice: ``python -m drumline.supervisor.notifying``, with the notice as JSON on its input.

Not as arguments, which every user of the machine could read.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from drumline.contract import events as e
from drumline.contract import status
from drumline.contract.folder import RunFolder
from drumline.contract.hiding import hide_in_text
from drumline.contract.outcome import fold
from drumline.linux import kernel
from drumline.supervisor.notifying import sending
from drumline.supervisor.notifying.notices import LIMIT_S

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME = "Notifications"


def main() -> None:
    """Tell every receiver at once, write down who was not reached, and end in time, whatever a receiver does."""
    kernel.set_process_name("drumline-notify")
    kernel.forbid_core()
    deadline = time.monotonic() + LIMIT_S - 1.0
    notice: dict[str, Any] = json.load(sys.stdin)
    notice["warnings"] = _list_warnings(notice) if notice["status"] == status.COMPLETED else []
    failures: dict[int, str] = {}
    threads = []
    receivers: list[dict[str, Any]] = notice["receivers"]
    for number, receiver in enumerate(receivers):
        failures[number] = "there was no time left"
        arguments = (number, receiver, notice, deadline, failures)
        thread = threading.Thread(target=_send, args=arguments, daemon=True)
        thread.start()
        threads.append(thread)
    for thread in threads:
        thread.join(max(0.0, deadline + 0.5 - time.monotonic()))
    if failures:
        told = "; ".join(
            f"{receivers[number]['name']} was not told of the {notice['event']}: {why}"
            for number, why in sorted(failures.copy().items())
        )
        RunFolder(notice["folder"]).append(e.ServiceStarted(time.time(), NAME, NAME, error=told))
    sys.stdout.flush()
    os._exit(0)


def _list_warnings(notice: Mapping[str, Any]) -> list[str]:
    """List what says that a job which has completed did less than was asked."""
    from drumline.control.facts.doubts import list_warnings
    from drumline.control.terminal import clean

    try:
        folder = RunFolder(notice["folder"])
        texts = [one.text for one in list_warnings(folder, fold(folder.read_events()))]
    except Exception as error:  # noqa: BLE001 - the notice itself must go out, whatever the job wrote
        print(f"could not look for warnings: {type(error).__name__}", file=sys.stderr, flush=True)
        return []
    return [hide_in_text(clean(text)) for text in texts]


def _send(
    number: int,
    receiver: Mapping[str, Any],
    notice: Mapping[str, Any],
    deadline: float,
    failures: dict[int, str],
) -> None:
    """Send a notice to a receiver. ``failures``: by the number of the receiver: two may have one name."""
    try:
        sending.send(receiver, notice, deadline)
    except sending.NotSentError as error:
        failures[number] = str(error)
    except Exception as error:  # noqa: BLE001 - a plug-in of a library may raise anything, with the address in it
        failures[number] = type(error).__name__
    else:
        failures.pop(number, None)


if __name__ == "__main__":
    main()
