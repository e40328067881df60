"""scripts/check and scripts/test in a copy of a few files: what makes them fail, and what they say."""

import os
import pwd
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from isolated_nodes import run_as_nobody

ROOT = Path(__file__).parents[2]
GOOD = "from waiting import wait_until\n\n\ndef test_it():\n    wait_until(lambda: True, 1)\n"
MARKED = "import pytest\n\n\n@pytest.mark.kubernetes\n"
MISSING = "test: there is no {}, which scripts/test names\n"


@pytest.fixture
def tree(tmp_path):
    """A checkout with one test module; what makes environments does nothing, and tools are those of this one."""
    for name in (
        "scripts/check",
        "scripts/test",
        "scripts/as-user",
        "pyproject.toml",
        "tests/mypy.ini",
        "tests/waiting.py",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "scripts" / "setup").write_text("")
    (tmp_path / "scripts" / "kubernetes-cluster").write_text("print('it is built')\n")
    (tmp_path / "src" / "drumline").mkdir(parents=True)
    (tmp_path / "src" / "drumline" / "words.py").write_text(
        'def one() -> int:\n    """\n    >>> one()\n    1\n    """\n    return 1\n'
    )
    (tmp_path / "tests" / "frameworks" / "environments").mkdir(parents=True)
    (tmp_path / "tests" / "frameworks" / "environments" / "jax.txt").touch()
    (tmp_path / "tests" / "unit").mkdir()
    (tmp_path / "tests" / "unit" / "test_it.py").write_text(GOOD)
    return tmp_path


def ran(tree, script, *arguments):
    """Its exit code and output; of the tools only those that look at tests are there."""
    tools = tree / "tools" / "bin"
    tools.mkdir(parents=True, exist_ok=True)
    for name in ("ruff", "lint-imports"):
        (tools / name).write_text("#!/bin/sh\n")
        (tools / name).chmod(0o755)
    for name in ("python", "pytest", "mypy"):
        (tools / name).write_text(f'#!/bin/sh\nexec "{Path(sys.executable).parent / name}" "$@"\n')
        (tools / name).chmod(0o755)
    done = subprocess.run(
        ["bash", tree / "scripts" / script, *arguments],
        env={**os.environ, "DRUMLINE_VENV": str(tree / "tools")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout + done.stderr


def write_test(path, text, name="test_it.py"):
    """A module of tests, or one in that folder."""
    path = path if path.suffix else path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_test_module_that_cannot_be_imported_fails_the_check(tree):
    pytest.importorskip("mypy", reason="of the part dev, which scripts/check installs")
    (tree / "tests" / "unit" / "test_it.py").write_text(
        GOOD.replace("import wait_until", "import wait_untill")
    )
    code, said = ran(tree, "check")
    assert code == 1
    assert "check: failed: mypy pytest --collect-only" in said
    assert "cannot import name 'wait_untill'" in said
    assert 'Module "waiting" has no attribute "wait_untill"' in said


def test_it_fails_the_suite_too(tree):
    (tree / "tests" / "unit" / "test_it.py").write_text("import no_such_module\n")
    code, said = ran(tree, "test", "tests")
    assert code == 2
    assert "no_such_module" in said


def test_a_renamed_file_of_those_that_are_named_fails_the_suite(tree):
    code, said = ran(tree, "test")
    assert (code, said) == (2, MISSING.format("tests/conformance"))


@pytest.mark.parametrize("bad", ["tests/engines", "tests/browser", "tests/integration/kubernetes"])
def test_a_test_that_fails_in_any_of_the_runs_fails_all_and_no_gate_runs_these(tree, bad):
    # All that the script names is there.
    text = (tree / "scripts" / "test").read_text()
    runs = re.findall(r"^ *(computing|small|alone|kubernetes)=\((.+)\)$", text, re.MULTILINE)
    assert len(runs) == 5
    listed = re.search(r"^for name in (mpi .*); do$", text, re.MULTILINE)
    assert listed
    named = [path for _, some in runs for path in some.split()]
    for path in (*named, *(f"tests/acceptance/test_{name}.py" for name in ["x", *listed[1].split()])):
        write_test(tree / path, GOOD)
    write_test(tree / "tests" / "engines", f"{MARKED}def test_pod():\n    pass\n", "test_pods.py")
    mark = MARKED if bad.endswith("kubernetes") else ""
    write_test(tree / bad, f"{mark}def test_bad():\n    raise ValueError('bad')\n", "test_bad.py")
    code, said = ran(tree, "test")
    assert (code, said.count(" failed"), "it is built" in said) == (0, 0, False), said
    code, said = ran(tree, "test", "--all")
    assert code == 1, said
    assert said.count("ValueError: bad") == 1
    assert said.count(" failed") == 1
    assert "test: tests/frameworks tests/engines " in said
    assert "test: tests/unit tests/conformance " in said
    assert ("it is built" in said) == (os.geteuid() == 0)


@pytest.mark.root
def test_tests_run_as_a_user_and_those_that_need_root_as_root(tree):
    write_test(
        tree / "tests" / "unit",
        "import os\n\nimport pytest\n\n\n"
        "def test_both():\n    print('user', os.geteuid(), os.environ['HOME'])\n\n\n"
        "@pytest.mark.root\ndef test_root():\n    print('root', os.geteuid())\n    assert os.geteuid()\n",
    )
    if run_as_nobody([sys.executable, "-c", "import pytest"], "/").returncode:
        pytest.skip("an ordinary user cannot run this Python")
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        copy = shutil.copytree(tree, f"{folder}/tree")
        for path in (folder, copy):
            os.chmod(path, 0o755)
        code, said = ran(Path(copy), "test", "--user", "nobody", "tests", "-s", "-p", "no:cacheprovider")
    # The user's own have passed, and the one that root has run has not.
    assert (code, said.count(" failed")) == (1, 1), said
    nobody = pwd.getpwnam("nobody")
    assert f"user {nobody.pw_uid} {nobody.pw_dir}" in said
    assert "user 0" not in said
    assert "root 0" in said


def test_arguments_that_cannot_be_are_refused(tree):
    assert ran(tree, "test", "--user") == (2, "test: --user needs a name, and root\n")
    assert ran(tree, "test", "--quick", "--all") == (2, "test: --quick has neither --all nor --frameworks\n")
