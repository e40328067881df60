"""Which Python a job means by ``python``: where Drumline is a tool of its own, and where it is not."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from drumline.contract.errors import UsageError
from drumline.control.environments import environment_builds
from drumline.staging.environments import uv
from drumline.staging.environments.tool import BuildError

SOURCE = Path(__file__).parents[2] / "src"


def make_environment(folder, *modules):
    """A real virtual environment, with modules of these names."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    packages = next(folder.glob("lib/python*/site-packages"))
    for name in modules:
        (packages / f"{name}.py").write_text("")
    return packages


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """``tool``: Drumline as pipx installs it; ``mine``: what a user has activated; ``bare``: without the module."""
    folder = tmp_path_factory.mktemp("environments")
    tool = make_environment(folder / "tool")
    (tool / "drumline.pth").write_text(f"{SOURCE}\n{sysconfig.get_path('purelib')}\n")
    (folder / "tool" / "pipx_metadata.json").write_text("{}")
    make_environment(folder / "mine", "only_mine")
    make_environment(folder / "bare")
    return folder


def run_tool(places, *arguments, **variables):
    env = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "CONDA_PREFIX")}
    argv = [places / "tool" / "bin" / "python", "-m", "drumline", "run", *arguments]
    return subprocess.run(
        argv, env={**env, **variables}, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )


WHERE = ("--", "python", "-c", "import sys; print(sys.prefix)")


def test_the_active_environment_is_meant(places, tmp_path):
    mine = str(places / "mine")
    assert mine in run_tool(places, *WHERE, VIRTUAL_ENV=mine).stdout
    assert mine in run_tool(places, *WHERE, CONDA_PREFIX=mine).stdout
    first = f"{places / 'tool' / 'bin'}:{places / 'bare' / 'bin'}:{os.environ['PATH']}"
    assert str(places / "bare") in run_tool(places, *WHERE, PATH=first).stdout


def test_a_named_python_is_meant(places, tmp_path):
    mine, bare = str(places / "mine"), str(places / "bare")
    assert mine in run_tool(places, "--python", mine, *WHERE, VIRTUAL_ENV=bare).stdout
    assert mine in run_tool(places, "--python", f"{mine}/bin/python", *WHERE).stdout
    assert mine in run_tool(places, *WHERE, DRUMLINE_PYTHON=f"{mine}/bin/python", VIRTUAL_ENV=bare).stdout


def test_elsewhere_it_is_drumlines_own(cli, places):
    done = cli("run", *WHERE, env={"VIRTUAL_ENV": str(places / "mine")})
    assert sys.prefix in done.out


def test_a_pipelines_steps_have_it(cli, places, tmp_path):
    (tmp_path / "pipeline.yml").write_text(
        "type: pipeline\njobs:\n  one: {command: python -c 'import only_mine'}\n"
    )
    done = cli("job", "create", "-f", "pipeline.yml", "--python", places / "mine", "--stream")
    assert done.rc == 0, done.out + done.err


@pytest.mark.parametrize("named", ["/no/such/python", "nosuchpython", "no/such/python"])
def test_a_python_that_is_not_there(cli, named):
    done = cli("run", "--python", named, "--", "true")
    assert done.rc == 2
    assert named in done.err


def test_a_missing_module_names_the_python(cli, places):
    python = places / "bare" / "bin" / "python"
    done = cli("run", "--python", python, "--", "python", "-c", "import only_mine")
    assert done.rc == 1
    assert "No module named 'only_mine'" in done.err
    assert (
        f"the Python is {python}: install the package there, or name another Python with --python" in done.err
    )


def test_a_job_that_builds_its_environment_is_told_of_that():
    from drumline.supervisor.explaining.exit_messages import _name_interpreter

    python = f"/home/ann/.local/share/drumline/environments/{'0' * 32}/bin/python"
    failure: Any = {"python": python}
    said = _name_interpreter(failure)
    assert said.endswith(": add the package to the job's environment")


def test_what_is_active_is_found(tmp_path, places):
    empty = {"PATH": str(tmp_path)}
    assert environment_builds.find_active(empty) == ""
    assert environment_builds.find_active({"VIRTUAL_ENV": sys.prefix, **empty}) == ""
    assert (
        environment_builds.find_active({"VIRTUAL_ENV": str(tmp_path), "PATH": f"{places}/bare/bin"})
        == f"{places}/bare/bin/python"
    )
    (tmp_path / "python3").symlink_to(sys.executable)
    assert environment_builds.find_active(empty) == str(tmp_path / "python3")
    with pytest.raises(UsageError):
        environment_builds.find_named("nosuchpython")


def test_a_shim_of_a_version_that_is_not_chosen_is_no_python(tmp_path, places, monkeypatch):
    """As pyenv's: it is there, and ends with 127."""
    shims = tmp_path / "shims"
    shims.mkdir()
    for name in ("python", "python3", "python3.9"):
        shim = shims / name
        shim.write_text(
            '#!/bin/sh\necho "pyenv: $0: command not found" >&2; exit 127\nexec pyenv exec "$@"\n'
        )
        shim.chmod(0o700)
    real = places / "bare" / "bin"
    path = f"{shims}:{real}"
    assert environment_builds.find_active({"PATH": path}) == f"{real}/python"
    assert environment_builds.find_active({"PATH": str(shims)}) == ""
    monkeypatch.setenv("PATH", path)
    assert environment_builds.find_named("python") == f"{real}/python"
    with pytest.raises(BuildError, match=r"there is no Python 3\.9 on this machine's PATH"):
        uv._python_of({"python": "3.9"})
