"""
The process that brings data in and out: ``python -m drumline.staging.transfer fetch|upload RUN_FOLDER``.

What it does is in the run's plan. It says how it goes as ``reporting`` has it, ends with 1 after a line ``failed``, and
may be ended by any signal at any time: what is held goes with the process, and the next one goes on where it was.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from typing import TYPE_CHECKING

from drumline.contract.errors import DrumlineError, NodeError, NotFoundError
from drumline.contract.folder import RunFolder
from drumline.contract.plan import Plan
from drumline.contract.uris import parse
from drumline.node import kernel
from drumline.staging import reporting

if TYPE_CHECKING:
    from typing import Any

    from drumline.contract.plan import Fetch, Upload
    from drumline.contract.uris import Place
    from drumline.staging.stores.base import Store


def main(arguments: list[str] | None = None) -> int:
    """The exit code. Nothing is raised."""
    kernel.die_with_parent(signal.SIGKILL, os.getppid())
    os.umask(0o077)
    parser = argparse.ArgumentParser(prog="python -m drumline.staging.transfer")
    parser.add_argument("what", choices=("fetch", "upload"))
    parser.add_argument("run_folder")
    parser.add_argument("--always-only", action="store_true", help="what is written whatever the end")
    given = parser.parse_args(arguments)
    folder = RunFolder(os.path.abspath(given.run_folder))
    try:
        plan = Plan.read(folder.plan)
        if given.what == "fetch":
            from drumline.staging import fetches
            from drumline.staging.cache import Cache, place

            cache = Cache(place(str(plan.compute.get("folder") or "")))
            fetches.run(folder, plan.fetches, opened, cache, plan)
        else:
            from drumline.staging import uploads

            wanted = [one for one in plan.uploads if one.always or not given.always_only]
            uploads.run(folder, wanted, opened)
    except DrumlineError as error:
        reporting.say("failed", message=error.message, hint=error.hint)
        return 1
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        reporting.say("failed", message=f"{error.strerror or error}{where}", hint="")
        return 1
    except Exception as error:  # noqa: BLE001 - the top of a process: nothing above would say it
        reporting.say("failed", message=f"this should not happen: {_described(error)}", hint="")
        return 1
    return 0


def _described(error: Exception) -> str:
    """Where it was goes to the log. What it says may be an address with its signature, and goes nowhere then."""
    import traceback

    text = f": {error}" if "://" not in str(error) and "=" not in str(error) else ""
    said = type(error).__name__ + text
    print("".join(traceback.format_tb(error.__traceback__)) + said, file=sys.stderr)  # noqa: T201
    return said


def opened(one: Fetch | Upload) -> tuple[Place, Store]:
    from drumline.staging.stores import open_store

    place = parse(one.uri)
    return place, open_store(place, _credentials(one))


def _credentials(one: Fetch | Upload) -> dict[str, Any] | None:
    """The record of its datastore. Raises NodeError where that cannot be seen from here."""
    if not one.datastore:
        return None
    from drumline.store.assets import Records

    try:
        return Records(one.home, "datastore").read(one.datastore, "1")
    except (NotFoundError, OSError) as error:
        raise NodeError(
            f"{one.name}: the datastore {one.datastore!r} cannot be seen from this machine",
            f"it is kept in {one.home}, which has to be there too",
        ) from error


if __name__ == "__main__":
    sys.exit(main())
