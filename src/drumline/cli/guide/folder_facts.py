"""Facts of a folder about the job that runs its program: the script, the libraries that it imports, its packages."""

from __future__ import annotations

import os
import re
import shlex

from drumline.contract.record import NamedTuple
from drumline.spec.names import default_experiment_name

_SCRIPTS = ("train.py", "main.py", "run.py", "finetune.py", "pretrain.py", "train_ddp.py")
_PACKAGES = ("environment.yml", "environment.yaml", "conda.yml", "conda.yaml", "requirements.txt")
_IGNORE_FILES = (".amlignore", ".gitignore")
_MOST_BYTES = 1 << 20
_MOST_SCRIPTS = 50
_IMPORT = re.compile(
    r"^[ \t]*(?:import|from)[ \t]+([A-Za-z_][\w.]*(?:[ \t]*,[ \t]*[A-Za-z_][\w.]*)*)", re.MULTILINE
)
_MAIN = re.compile(r"^if[ \t]+__name__[ \t]*==", re.MULTILINE)

_DISTRIBUTIONS = {
    "deepspeed": "pytorch",
    "lightning": "pytorch",
    "pytorch_lightning": "pytorch",
    "accelerate": "pytorch",
    "transformers": "pytorch",
    "horovod": "mpi",
    "mpi4py": "mpi",
    "ray": "ray",
    "tensorflow": "tensorflow",
    "keras": "tensorflow",
    "torch": "pytorch",
    "jax": "pytorch",
}
"""By the module that a script imports; the first that it imports decides."""


class FolderFacts(NamedTuple):
    folder: str
    command: str
    distribution: str
    """``none`` where no script imports a framework."""

    packages: str
    """The file that lists its packages; empty for none."""

    experiment: str
    has_ignore_file: bool


def look_at(folder: str) -> FolderFacts:
    """Look at a folder. Unreadable files count as empty; nothing is imported or run."""
    script = _find_script(folder)
    imports = _read_imports(os.path.join(folder, script)) if script else set()
    distribution = next((kind for name, kind in _DISTRIBUTIONS.items() if name in imports), "none")
    names = {one for one in (*_PACKAGES, *_IGNORE_FILES) if os.path.isfile(os.path.join(folder, one))}
    return FolderFacts(
        folder=folder,
        command=f"python {shlex.quote(script or 'train.py')}",
        distribution=distribution,
        packages=next((one for one in _PACKAGES if one in names), ""),
        experiment=default_experiment_name(folder),
        has_ignore_file=any(one in names for one in _IGNORE_FILES),
    )


def _find_script(folder: str) -> str:
    """Return the program of a folder: a usual name, else the only script, or the only one with a main part."""
    try:
        scripts = sorted(name for name in os.listdir(folder) if name.endswith(".py"))[:_MOST_SCRIPTS]
    except OSError:
        return ""
    usual = next((name for name in _SCRIPTS if name in scripts), "")
    if usual or len(scripts) == 1:
        return usual or scripts[0]
    programs = [name for name in scripts if _MAIN.search(_read(os.path.join(folder, name)))]
    return programs[0] if len(programs) == 1 else ""


def _read_imports(path: str) -> set[str]:
    """Return the top-level modules that a script imports anywhere."""
    found = set()
    for line in _IMPORT.findall(_read(path)):
        found |= {name.strip().partition(".")[0] for name in line.split(",")}
    return found


def _read(path: str) -> str:
    if not os.path.isfile(path):  # A pipe would block.
        return ""
    try:
        with open(path, "rb") as file:
            return file.read(_MOST_BYTES).decode(errors="replace")
    except OSError:
        return ""
