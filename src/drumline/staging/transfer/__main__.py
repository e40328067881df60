"""
The process that brings data in and out: ``python -m drumline.staging.transfer fetch|upload RUN_FOLDER``.

The run's plan says what to move. Progress goes out as ``messages``; after a message ``failed`` the exit code is 1. Any
signal may kill it at any time: its locks are released with it, and the next process goes on where it was.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys

from drumline.contract.errors import DrumlineError, describe_os_error
from drumline.contract.folder import RunFolder
from drumline.contract.plan import Plan
from drumline.linux import kernel
from drumline.staging import transfer_messages
from drumline.staging.cache.cache_folder import Cache, cache_path
from drumline.staging.datastore_access import open_remote


def main(arguments: list[str] | None = None) -> int:
    """Fetch or upload, and return the exit code. Raises nothing."""
    kernel.die_with_parent(signal.SIGKILL, os.getppid())
    kernel.lose_output_without_room()
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
            from drumline.staging.transfer import inputs

            cache = Cache(cache_path(str(plan.compute.get("folder") or "")))
            inputs.fetch_inputs(folder, plan.fetches, open_remote, cache, plan)
        else:
            from drumline.staging.transfer import outputs

            wanted = [one for one in plan.uploads if one.always or not given.always_only]
            outputs.upload_outputs(folder, wanted, open_remote)
    except DrumlineError as error:
        transfer_messages.send("failed", message=error.message, hint=error.hint)
        return 1
    except OSError as error:
        transfer_messages.send("failed", message=describe_os_error(error), hint="")
        return 1
    except Exception as error:  # noqa: BLE001 - the top of a process: nothing above would say it
        transfer_messages.send("failed", message=f"this should not happen: {_describe_crash(error)}", hint="")
        return 1
    return 0


def _describe_crash(error: Exception) -> str:
    """Describe an unexpected error, without text that may be a signed address; the traceback goes to the log."""
    import traceback

    text = f": {error}" if "://" not in str(error) and "=" not in str(error) else ""
    said = type(error).__name__ + text
    print("".join(traceback.format_tb(error.__traceback__)) + said, file=sys.stderr)  # noqa: T201
    return said


if __name__ == "__main__":
    sys.exit(main())
