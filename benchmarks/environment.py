"""
The virtual environment of the benchmarks: Drumline as it stands in this checkout, and its peers.
"""

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DEFAULT_VENV = Path(__file__).resolve().parent / ".venv"


def prepare(folder: Path, packages: list[list[str]]) -> list[str]:
    """
    Install each group of packages in turn, then Drumline; return a line for each that could not
    be installed.

    A group is installed by one call of pip. What is there already is left as it is, but for
    Drumline,
    which is built anew from the checkout.
    """
    if not (folder / "bin" / "python").exists():
        say(f"making {folder}")
        venv.create(folder, with_pip=True)
    groups = [*packages, [str(ROOT)]]
    problems = [problem for group in groups if (problem := install(folder, group))]
    if not problems:
        # The version number alone would not tell pip that the code has changed.
        install(folder, ["--force-reinstall", "--no-deps", str(ROOT)])
    return problems


def install(folder: Path, packages: list[str]) -> str:
    """Install with pip; return why not in one line, or nothing."""
    say("installing " + " ".join(packages))
    pip = [
        str(folder / "bin" / "python"),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ]
    done = subprocess.run(
        [*pip, *packages], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode == 0:
        return ""
    return f"{' '.join(packages)}: {last_line(done.stderr)}"


def install_debian_package(package: str, program: str) -> str:
    """
    Install the package where the program is missing and we are root; return why not, or nothing.
    """
    if shutil.which(program):
        return ""
    if os.getuid() != 0 or not shutil.which("apt-get"):
        return f"{package}: not installed, and this is not root on a machine with apt-get"
    say(f"installing {package} with apt-get")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for arguments in (
        ["update", "-qq"],
        ["install", "-y", "-qq", "--no-install-recommends", package],
    ):
        done = subprocess.run(
            ["apt-get", *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            env=environment,
        )
        if done.returncode:
            return f"{package}: {last_line(done.stderr)}"
    return ""


def installed_version(folder: Path, distribution: str) -> str | None:
    """The version of a distribution in the environment, or None where it is not there."""
    code = "import importlib.metadata, sys; print(importlib.metadata.version(sys.argv[1]))"
    done = subprocess.run(
        [str(folder / "bin" / "python"), "-c", code, distribution],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() if done.returncode == 0 else None


def last_line(text: str) -> str:
    """The last line that says something."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no message"


def say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)
