"""The user's browser, led to a page of a studio that it is logged in to."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from html import escape
from typing import TYPE_CHECKING

from drumline.control.settings import studios

if TYPE_CHECKING:
    from typing import TextIO

    from drumline.control.settings.studios import Studio


def open_page(
    studio: Studio, to: str = "/", *, opens_browser: bool = True, out: TextIO | None = None
) -> None:
    """
    Open a page of a studio in the browser, logged in; where there is none, print the address of a login, on a terminal
    alone. ``out``: default stdout.

    Nothing secret reaches a command line: the browser is given a file, for its owner alone, that leads to the login.
    """
    out = out or sys.stdout
    studios.remove_old_pages()
    login = studio.address + studios.make_login(studio.token, to)
    opener = _find_opener() if opens_browser else []
    if opener and _start([*opener, _write_page(login)]):
        return
    if out.isatty():
        print(f"open this once, within {studios.ONCE_S} seconds:\n  {login}", file=out, flush=True)


def show_job(name: str, workspace: str) -> bool:
    """Open the page of a job, and print its address to stderr. False where no studio runs."""
    running = studios.find_running()
    if running is None:
        return False
    page = running.path_of(name, workspace)
    print(running.address + page, file=sys.stderr)
    open_page(running, page, out=sys.stderr)
    return True


def _write_page(login: str) -> str:
    """Return the path of a file, for its owner alone, that leads a browser on."""
    text = (
        f'<!doctype html><meta http-equiv="refresh" content="0;url={escape(login)}"><title>Drumline</title>'
    )
    with tempfile.NamedTemporaryFile(
        "w", dir=studios.folder(), prefix="open-", suffix=".html", delete=False
    ) as file:
        file.write(text)
    return file.name


def _start(argv: list[str]) -> bool:
    try:
        subprocess.Popen(  # noqa: S603 - the user's own program
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        print(f"{argv[0]} could not be started: {error.strerror}", file=sys.stderr)
        return False
    return True


def _find_opener() -> list[str]:
    """Return the program that opens a page beside this one; empty: there is none."""
    if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return []
    chosen = shlex.split(os.environ.get("BROWSER", "").partition(":")[0])
    if chosen and "%s" not in chosen and shutil.which(chosen[0]):
        return chosen
    return ["xdg-open"] if shutil.which("xdg-open") else []
