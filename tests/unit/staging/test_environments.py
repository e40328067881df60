"""What is said of a resolver's last words."""

import os
import signal
import sys

import pytest

from drumline.contract.plan import Build
from drumline.staging.environments import environment_builder, uv
from drumline.staging.environments.environment_builder import is_ready, note_use
from drumline.staging.environments.environment_folder import MARKER
from drumline.staging.environments.tool import BuildError, Tool, summarize_output

UV = """Using Python 3.11.7 environment at: v
Resolved 3 packages in 1ms
  \u00d7 No solution found when resolving dependencies:
  \u2570\u2500\u25b6 Because there is no version of a==9 and you require a==9, we can conclude that
      your requirements are unsatisfiable.
"""
PIP = """Collecting a==9
ERROR: Could not find a version that satisfies the requirement a==9 (from versions: 1.0)
ERROR: No matching distribution found for a==9
[notice] A new release of pip is available
"""
MAMBA = """info     libmamba ****
error    libmamba Could not solve for environment specs
    The following packages are incompatible
    \u251c\u2500 numpy =99 * does not exist (perhaps a typo or a missing channel);
    \u2514\u2500 torch =2 * can be installed.
critical libmamba Could not solve for environment specs
"""


@pytest.mark.parametrize(
    ("output", "words"),
    [
        (
            UV,
            "No solution found when resolving dependencies: Because there is no version of a==9 and you require a==9,"
            " we can conclude that your requirements are unsatisfiable",
        ),
        (
            PIP,
            "Could not find a version that satisfies the requirement a==9 (from versions: 1.0): No matching"
            " distribution found for a==9",
        ),
        (
            MAMBA,
            "Could not solve for environment specs: The following packages are incompatible: numpy =99 * does not exist"
            " (perhaps a typo or a missing channel); torch =2 * can be installed",
        ),
        (
            "\x1b[31merror\x1b[0m: failed to fetch https://me:secret@host/x\n",
            "failed to fetch https://...@host/x",
        ),
        ("one\ntwo\n", "one: two"),
        ("", ""),
    ],
)
def test_the_last_words_are_one_sentence(output, words):
    assert summarize_output(output) == words


def test_a_long_story_is_cut():
    said = summarize_output("error: " + "x" * 5000)
    assert len(said) <= 600
    assert said.endswith(" ...")


# whether one is there


def test_ready_is_what_has_its_marker_and_its_python(tmp_path):
    prefix, run = tmp_path / "p", tmp_path / "run"
    build = Build("uv", "d", str(prefix), {})
    run.mkdir()
    assert not is_ready(build)
    (prefix / "bin").mkdir(parents=True)
    (prefix / "bin" / "python").symlink_to(tmp_path / "gone")
    (prefix / MARKER).write_text("{}")
    assert not is_ready(build)
    (tmp_path / "gone").touch()
    assert is_ready(build)
    os.utime(prefix / MARKER, (0, 0))
    (prefix / "environment.lock").write_text("a==1\n")
    note_use(build, str(run))
    assert (prefix / MARKER).stat().st_mtime > 0
    assert (run / "environment.lock").read_text() == "a==1\n"


def test_what_works_stays_when_it_cannot_be_made_again(tmp_path, monkeypatch):
    prefix = tmp_path / "d"
    build = Build("uv", "d", str(prefix), {"requirements": [], "constraints": [], "base": "/nowhere/python"})
    (prefix / "bin").mkdir(parents=True)
    (prefix / "bin" / "python").touch()
    (prefix / MARKER).write_text("{}")
    (tmp_path / "d.build-left").mkdir()
    monkeypatch.setattr(uv, "find_uv", lambda: "")
    with pytest.raises(BuildError):
        environment_builder.build_environment(build, 2, print, is_forced=True)
    assert is_ready(build)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["d", "d.lock"]


def test_a_tool_has_ended_though_a_server_of_its_own_goes_on(tmp_path):
    with (tmp_path / "log").open("wb") as log:
        Tool(log.fileno(), print).run(["/bin/sh", "-c", f"sleep 60 & echo $! >{tmp_path}/pid; echo said"])
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    assert "said" in (tmp_path / "log").read_text()


def test_what_is_elsewhere_on_the_machine_is_no_part_of_it(tmp_path, monkeypatch):
    package = tmp_path / "elsewhere"
    package.mkdir()
    (package / "only_there.py").touch()
    for name, value in {"PYTHONPATH": package, "PIP_TARGET": package, "PIP_USER": "1"}.items():
        monkeypatch.setenv(name, str(value))
    asks = (
        "import importlib.util as u, os; "
        "print(u.find_spec('only_there'), os.environ['PIP_TARGET'], os.environ['PIP_USER'])"
    )
    said = []
    monkeypatch.setattr(
        environment_builder,
        "_choose_maker",
        lambda _: lambda _, tool: said.append(tool.output([sys.executable, "-c", asks])),
    )
    environment_builder.build_environment(Build("uv", "d", str(tmp_path / "d"), {}), 2, print)
    assert said == ["None  0\n"]
