"""The agent runs in users' environments: Python and four of our packages are all that it needs."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from interpreters import oldest_and_this

import drumline

PARTS = ("checks", "contract", "linux", "node")

IMPORT_ALL = """
import ast, importlib, importlib.util, json, os, sys

def imported_names(path):
    with open(path, "rb") as file:
        tree = ast.parse(file.read())
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module

def is_there(name):
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False

tree = sys.argv[1]
sys.path.insert(0, tree)
imported, missing = [], {}
for folder, _, names in os.walk(tree):
    for name in names:
        path = os.path.join(folder, name)
        if name.endswith(".py"):
            module = os.path.relpath(path, tree)[:-3].replace(os.sep, ".")
            missing.update((one, module) for one in imported_names(path) if not is_there(one))
            if not missing:
                importlib.import_module(module)
                imported.append(module)
print(json.dumps([sorted(imported), missing]))
"""
"""Imports every module below a folder; those that late imports name have to be there too."""


@pytest.fixture
def tree(tmp_path):
    """A package with those folders and nothing else."""
    source = Path(drumline.__file__).parent
    for part in PARTS:
        shutil.copytree(
            source / part, tmp_path / "drumline" / part, ignore=shutil.ignore_patterns("__pycache__")
        )
    (tmp_path / "drumline" / "__init__.py").touch()
    return tmp_path


@pytest.mark.parametrize("python", oldest_and_this())
def test_every_module_is_imported_without_any_package(tree, python):
    done = subprocess.run(
        [python, "-I", "-S", "-c", IMPORT_ALL, str(tree)], capture_output=True, text=True, env={}, check=False
    )
    assert done.returncode == 0, done.stderr
    imported, missing = json.loads(done.stdout)
    assert missing == {}
    assert len(imported) == len(list(tree.rglob("*.py")))
