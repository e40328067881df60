"""Small packages in a folder that stands for an index, and an archive whose build waits while a file is there."""

import io
import json
import tarfile
import zipfile
from pathlib import Path


def wheel(
    folder: Path, name: str, version: str = "1.0", requires: tuple[str, ...] = (), script: str = ""
) -> Path:
    """A module of that name, with ``version``. ``script``: of this name on PATH, which prints it."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {one}\n" for one in requires)
    files = {
        f"{name}/__init__.py": f"version = {version!r}\n\n\ndef main():\n    print({version!r})\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{script} = {name}:main\n" if script else "",
    }
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in files) + f"{info}/RECORD,,\n"
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for inside, text in files.items():
            archive.writestr(inside, text)
    return path


BACKEND = """
import os, signal, zipfile

def build_wheel(folder, config_settings=None, metadata_directory=None):
    if os.path.exists({gate!r}):
        print("waiting for the gate", flush=True)
        open({gate!r}, "w").write(str(os.getpid()))
        signal.pause()
    name = "gated-1.0-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(folder, name), "w") as wheel:
        for path, text in {files!r}.items():
            wheel.writestr(path, text)
    return name
"""


def gated(folder: Path, gate: Path) -> Path:
    """The archive ``gated``, whose build does not end while ``gate`` is there; it writes its process id into that."""
    made = wheel(folder / "inside", "gated")
    with zipfile.ZipFile(made) as archive:
        files = {name: archive.read(name).decode() for name in archive.namelist()}
    toml = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    toml += '[project]\nname = "gated"\nversion = "1.0"\n'
    texts = {
        "pyproject.toml": toml,
        "backend.py": BACKEND.format(gate=str(gate), files=files),
        "PKG-INFO": "Metadata-Version: 2.1\nName: gated\nVersion: 1.0\n",
    }
    path = folder / "gated-1.0.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name, text in texts.items():
            entry = tarfile.TarInfo(f"gated-1.0/{name}")
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    return path


def index(folder: Path) -> Path:
    """What environments of tests are made from. Its ``pip`` is only a name: the real one takes a second."""
    wheel(folder, "pip", "99.0", script="pip")
    wheel(folder, "sums", "1.0", requires=("parts>=2",))
    wheel(folder, "parts", "1.0")
    wheel(folder, "parts", "2.0", script="parts")
    return folder


def conda_file(path: Path, wheels: Path, *lines: str, packages: tuple[str, ...] = ()) -> Path:
    pip = ["--no-index", f"--find-links {wheels}", *lines]
    path.write_text(json.dumps({"dependencies": [*packages, {"pip": pip}]}))
    return path
