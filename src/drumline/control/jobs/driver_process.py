"""The driver process of a pipeline or a sweep: started when the job is submitted, and again when it was killed."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from drumline.contract.errors import EngineError, describe_os_error
from drumline.contract.folder import base_home

if TYPE_CHECKING:
    from collections.abc import Iterable

    from drumline.contract.folder import RunFolder

KEPT_VARIABLES = (
    "PATH", "DRUMLINE_PYTHON", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV",
    "SLURM_CONF", "CUDA_VISIBLE_DEVICES", "TMPDIR", "LANG", "LC_ALL",
)  # fmt: skip
"""
Variables of whoever submits that a driver has too when somebody else starts it again: those that say where programs
are. Others may be secrets, and are nowhere on disk.
"""


def start_driver(
    folder: RunFolder,
    interpreter: str,
    surroundings: dict[str, str],
    names: Iterable[str] = (),
    secrets: str = "",
) -> None:
    """
    Start the driver of that run folder, which goes to the background at once. Raises EngineError.

    ``secrets``: those of its steps, as ``contract.secrets`` passes them on, and their ``names``.
    """
    import subprocess  # Not needed by a driver's guard, which a command waits for.

    from drumline.linux.notebook_environment import restore_environment

    # A fork of this process would not do: it may have threads, and its modules are not those of a driver.
    ours = {"DRUMLINE_HOME": base_home(), "DRUMLINE_WORKSPACE": folder.workspace}
    inherited = {name: value for name, value in restore_environment().items() if name not in frozenset(names)}
    if secrets:
        from drumline.contract.secrets import VARIABLE

        ours[VARIABLE] = secrets
    argv = [interpreter, "-P", "-m", "drumline.control.driver", folder.path]
    done = subprocess.run(  # noqa: S603
        argv,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        env={**inherited, **surroundings, **ours},
    )
    if done.returncode:
        raise EngineError(f"the driver of job {folder.name} did not start: {done.stderr.strip()[-500:]}")


def restart_driver(folder: RunFolder, secrets: str = "") -> str:
    """
    Start a driver where there is none any more; harmless where there is one. It has our environment, but for what the
    one that submitted the job had, and no value for the names of secrets. Never raises, but returns why it did not
    start: whoever looks next tries again.

    ``secrets``: as of ``start_driver``, where this process has them.
    """
    from drumline.contract.secrets import list_names

    try:
        graph = folder.read_json(folder.graph) or {}
        interpreter = str(graph.get("interpreter") or sys.executable)
        kept = graph.get("surroundings")
        surroundings = (
            {str(name): str(kept[name]) for name in KEPT_VARIABLES if name in kept}
            if isinstance(kept, dict)
            else {}
        )
        names = list_names(graph)
        python = interpreter if os.access(interpreter, os.X_OK) else sys.executable
        start_driver(folder, python, surroundings, names, secrets)
    except EngineError as error:
        return error.message
    except OSError as error:
        return describe_os_error(error)
    return ""
