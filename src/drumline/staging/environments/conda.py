"""
An environment by micromamba, mamba or conda, whichever this machine has.

Recipe: ``channels``, ``packages`` (as in a conda file), ``requirements`` and ``constraints`` (pip's), ``tool`` (where
the program was found when the job was submitted).
Source: https://mamba.readthedocs.io/en/latest/user_guide/micromamba.html,
https://docs.conda.io/projects/conda/en/stable/commands/env/create.html
"""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING, Any

from drumline.contract.folder import write_whole
from drumline.staging.environments.environment_folder import LOCK_FILE, make_build_folder
from drumline.staging.environments.tool import BuildError, Tool, find_program, hide_secrets

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drumline.contract.plan import Build

_PLACES = (
    "~/.local/bin",
    "~/bin",
    "~/miniforge3/bin",
    "~/mambaforge/bin",
    "~/miniconda3/bin",
    "~/anaconda3/bin",
    "/opt/conda/bin",
    "/opt/miniforge3/bin",
)
HINT = (
    "micromamba is one file: https://mamba.readthedocs.io/en/latest/installation/micromamba-installation.html; "
    "or name the packages below `pip:`"
)


def find_conda(environ: Mapping[str, str]) -> str:
    """Return the path of the quickest of them; empty if there is none."""
    named = {"micromamba": "MAMBA_EXE", "mamba": "MAMBA_EXE", "conda": "CONDA_EXE"}
    for name, variable in named.items():
        path = environ.get(variable, "")
        if path and os.path.basename(path) == name and os.access(path, os.X_OK):
            return path
        found = find_program(name, *_PLACES)
        if found:
            return found
    return ""


def make(build: Build, tool: Tool) -> None:
    """Build the environment. Raises BuildError."""
    recipe = build.recipe
    path = str(recipe.get("tool") or "")
    if not os.access(path, os.X_OK):
        path = find_conda(os.environ)
    if not path:
        raise BuildError("there is no micromamba, mamba or conda on this machine", HINT)
    name = os.path.basename(path)
    tool.say(f"{len(recipe['packages'])} conda packages, by {name}")
    folder = make_build_folder(build.prefix)
    variables = {
        "CONDA_ALWAYS_YES": "true",
        "MAMBA_ALWAYS_YES": "true",
        "NO_COLOR": "1",
        "CONDA_COLOR": "never",
    }
    variables |= {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_PROGRESS_BAR": "off", "PIP_NO_INPUT": "1"}
    try:
        file = _write_conda_file(recipe, folder)
        # It makes the folder by itself, and takes one that is there for an environment.
        os.rmdir(build.prefix)
        create = ["create", "-y"] if name == "micromamba" else ["env", "create"]
        tool.run([path, *create, "-p", build.prefix, "-f", file], env=variables)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    lock = tool.output([path, "env", "export", "-p", build.prefix], env=variables)
    write_whole(os.path.join(build.prefix, LOCK_FILE), hide_secrets(lock))


def _write_conda_file(recipe: Any, folder: str) -> str:
    """Write the conda file; JSON is YAML."""
    dependencies: list[Any] = list(recipe["packages"])
    lines = list(recipe["requirements"])
    if recipe.get("constraints"):
        path = os.path.join(folder, "constraints.txt")
        write_whole(path, "".join(f"{line}\n" for line in recipe["constraints"]))
        lines.insert(0, f"-c {path}")
    if lines:
        dependencies.append({"pip": lines})
    content = {"channels": list(recipe["channels"]), "dependencies": dependencies}
    file = os.path.join(folder, "environment.yml")
    write_whole(file, json.dumps(content, indent=1) + "\n")
    return file
