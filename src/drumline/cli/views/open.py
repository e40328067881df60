"""The folders of a job and copies of them: ``drumline job open``, ``download`` and ``bundle``."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from drumline import __version__
from drumline.cli.arguments import FORMATS, find_job, get_name
from drumline.contract.errors import UsageError
from drumline.control.access import job_files
from drumline.control.jobs.lookup import folder_of
from drumline.control.jobs.recovery import recover
from drumline.control.progress_bar import ProgressBar
from drumline.control.terminal import clean

if TYPE_CHECKING:
    from argparse import Namespace


def open_folder(arguments: Namespace) -> int:
    words = [*([arguments.name] if arguments.name else []), *arguments.given]
    if not words or len(words) > 2 or (len(words) == 2 and words[1] not in job_files.PLACES):
        what = f"{words[1]!r} is not a place" if len(words) > 1 else "a job's name is missing"
        raise UsageError(what, f"drumline job open NAME [{'|'.join(job_files.PLACES)}]")
    path = job_files.find_place(find_job(words[0]), words[1] if len(words) == 2 else "run")
    opener = _find_opener() if sys.stdout.isatty() else []
    if not opener:
        print(clean(path) if sys.stdout.isatty() else path)
        return 0
    import subprocess

    try:
        return subprocess.run([*opener, path], check=False).returncode  # noqa: S603 - the user's own program
    except OSError as error:
        raise UsageError(
            f"{opener[0]} could not be started: {error.strerror}", "set VISUAL to an editor"
        ) from error


def _find_opener() -> list[str]:
    """Return the program that shows a folder to this person; empty: there is none. Raises UsageError."""
    import shlex
    import shutil

    has_display = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if has_display and shutil.which("xdg-open"):
        return ["xdg-open"]
    try:
        return shlex.split(os.environ.get("VISUAL", ""))
    except ValueError as error:
        what = f"VISUAL is not a command, {os.environ['VISUAL']!r}: {str(error).lower()}"
        raise UsageError(what, "export VISUAL='code --wait'") from error


def download_job(arguments: Namespace) -> int:
    from drumline.control.jobs.download import download

    name = get_name(arguments, "job", "downloading")
    recover(folder_of(name))
    with ProgressBar(interval_s=0.1) as bar:
        target = download(
            name, arguments.download_path, output=arguments.output_name, everything=arguments.all, bar=bar
        )
    print(clean(f"downloaded to {target}"), file=sys.stderr)
    return 0


def bundle_job(arguments: Namespace) -> int:
    from drumline.control.upkeep.bundle import write_bundle

    if arguments.output in FORMATS:
        raise UsageError(
            f"--output: {arguments.output!r} is a format, and a bundle is a zip file", "-o bug.zip"
        )
    name = get_name(arguments, "job", "bundling")
    path = arguments.output or f"{name}-bundle.zip"
    if os.path.lexists(path):
        raise UsageError(f"{path} exists, and is not overwritten", "--output FILE names another one")
    sys.stdout.write(clean(write_bundle(name, path, __version__)))
    told = f"written to {path}; names, paths and commands are in it: look before you send it"
    print(clean(told), file=sys.stderr)
    return 0
