"""
An engine of containers for tests: the real podman with a storage of its own where it works, and a stand-in that starts
the program without a container, everywhere. The image has nothing in it; ``MOUNTS`` puts this machine's programs there.
"""

import io
import os
import subprocess
import tarfile
import tempfile
import textwrap
from pathlib import Path

from programs import first_lines

IMAGE = "localhost/drumline-tests:1"
MOUNTS = ["--volume", "/usr:/usr:ro"]
PYTHON = "/usr/bin/python3"
"""Of the machine's own system; with the mounts it is the image's too."""

STAND_IN = """\
import json, os, subprocess, sys

state = {state!r}
words = sys.argv[1:]
with open(os.path.join(state, "calls"), "a") as calls:
    calls.write(json.dumps(words) + "\\n")
images = set(open(os.path.join(state, "images")).read().split())
if words[0] == "info":
    print("stand-in")
elif words[:2] == ["image", "inspect"]:
    print(words[-1])
    sys.exit(words[-1] not in images)
elif words[0] == "pull":
    sys.exit("Error: initializing source docker://" + words[1] + ": no such host")
elif words[0] == "build":
    tag = words[words.index("--tag") + 1]
    with open(os.path.join(state, "images"), "a") as file:
        file.write(tag + "\\n")
elif words[0] == "exec":
    begin = next(index for index, word in enumerate(words) if word.startswith("drumline-"))
    given = {{"PATH": "/usr/bin:/bin"}}
    for option, value in zip(words, words[1:begin]):
        if option == "--env":
            given[value] = os.environ[value]
        elif option == "--workdir":
            os.chdir(value)
    os.execve("/bin/sh", ["/bin/sh", *words[begin + 2:]], given)
elif words[0] == "run":
    end = next(index for index, word in enumerate(words) if word in images)
    options, program = words[1:end], words[end + 1:]
    given = {{}}
    for option, value in zip(options, options[1:]):
        if option == "--env":
            name, is_set, text = value.partition("=")
            given[name] = text if is_set else os.environ.get(name, "")
        elif option == "--workdir":
            os.chdir(value)
    given.setdefault("PATH", "/usr/bin:/bin")
    os.execve("/bin/sh", ["/bin/sh", *program], given)
"""


class UnavailableError(Exception):
    """Why there is no podman here."""


class StandIn:
    """A program ``podman`` in ``folder``, which is to be first on the PATH."""

    is_real = False

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        (folder / "images").write_text(f"{IMAGE}\n")
        program = folder / "podman"
        program.write_text(first_lines() + STAND_IN.format(state=str(folder)))
        program.chmod(0o755)
        self.variables = {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}

    def left(self) -> list[str]:
        """Containers that are still there."""
        return []


class Podman:
    """Raises UnavailableError."""

    is_real = True

    def __init__(self, folder: Path) -> None:
        import shutil

        if shutil.which("podman") is None:
            raise UnavailableError("there is no podman here")
        folder.mkdir()
        storage = f"""\
            [storage]
            driver = "vfs"
            graphroot = "{folder}/images"
            runroot = "{folder}/run"
        """
        (folder / "storage.conf").write_text(textwrap.dedent(storage))
        self.variables = {"CONTAINERS_STORAGE_CONF": str(folder / "storage.conf")}
        self._import()
        # Where the one that podman prefers does not know this machine's control groups, another may.
        said = [self._try(folder, runtime) for runtime in ("", "runc", "crun")]
        if "" not in said:
            raise UnavailableError(f"podman cannot run anything here: {said[0]}")

    def _try(self, folder: Path, runtime: str) -> str:
        """What it says where it fails; empty: it works, with that runtime from now on."""
        if (folder / "works").exists():
            return ""
        variables = dict(self.variables)
        if runtime:
            (folder / "containers.conf").write_text(f'[engine]\nruntime = "{runtime}"\n')
            variables["CONTAINERS_CONF"] = str(folder / "containers.conf")
        done = self._podman(
            "run", "--rm", "--network", "host", "--pid", "host", "--ulimit", "nofile=512:512",
            "--ulimit", "nproc=512:512", *MOUNTS, IMAGE, PYTHON, "-c", "",
            env=variables,
        )  # fmt: skip
        if done.returncode == 0:
            self.variables = variables
            (folder / "works").touch()
            return ""
        return done.stderr.strip() or f"code {done.returncode}"

    def _import(self) -> None:
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            for name in ("usr", "tmp", "proc", "sys", "dev", "etc"):
                entry = tarfile.TarInfo(name)
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                tar.addfile(entry)
            for name in ("bin", "lib", "lib64", "sbin"):
                entry = tarfile.TarInfo(name)
                entry.type, entry.linkname = tarfile.SYMTYPE, f"usr/{name}"
                tar.addfile(entry)
        with tempfile.NamedTemporaryFile() as file:
            file.write(archive.getvalue())
            file.flush()
            done = self._podman("import", "--quiet", file.name, IMAGE)
        if done.returncode != 0:
            raise UnavailableError(f"podman cannot keep an image here: {done.stderr.strip()}")

    def left(self) -> list[str]:
        return self._podman("ps", "--all", "--quiet").stdout.split()

    def _podman(self, *words: str, env: dict[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
        variables = {**os.environ, **(self.variables if env is None else env)}
        return subprocess.run(
            ["podman", *words],
            env=variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
