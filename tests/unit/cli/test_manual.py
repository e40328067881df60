"""Manual pages: one a command, in the words of its parser, which man and mandoc read without a complaint."""

import shutil
import subprocess
import sys
from pathlib import Path

import manual_pages
import pytest

from drumline.cli.main import COMMANDS

ROOT = Path(__file__).parents[3]
PAGES = manual_pages.make_pages()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("man")
    manual_pages.write_pages(str(folder))
    return folder / "man1"


def test_every_command_has_a_page(folder):
    assert set(PAGES) == {"drumline", *(f"drumline-{command}" for command in COMMANDS)}
    assert {path.name for path in folder.iterdir()} == {f"{name}.1" for name in PAGES}


def test_a_page_has_the_verbs_and_options():
    page = PAGES["drumline-job"]
    assert ".SS drumline job create\n" in page
    assert r"\fB\-\-file\fR \fIFILE\fR" in page
    assert r"\-\-resource" not in page
    assert r"\fB\-\-nodes\fR \fIN\fR" in PAGES["drumline-run"]
    assert "SUPPRESS" not in "".join(PAGES.values())


def test_man_reads_them(folder):
    if shutil.which("man") is None or shutil.which("groff") is None:
        pytest.skip("there is no man or no groff here: scripts/setup test installs them where it may")
    done = subprocess.run(
        ["man", "--warnings=w", "-E", "UTF-8", "-l", folder / "drumline-job.1"],
        capture_output=True,
        text=True,
        env={"MANWIDTH": "80", "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "--skip-validation" in done.stdout


def test_mandoc_has_no_complaint(folder):
    if shutil.which("mandoc") is None:
        pytest.skip("there is no mandoc here: scripts/setup test installs it where it may")
    pages = sorted(folder.iterdir())
    done = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", *pages], capture_output=True, text=True)
    assert done.stdout == ""


def test_the_script_writes_them(tmp_path):
    """As the build of a wheel does, with nothing installed."""
    script = ROOT / "scripts" / "manual_pages.py"
    done = subprocess.run([sys.executable, "-I", "-S", script, tmp_path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "man1" / "drumline-job.1").read_text() == PAGES["drumline-job"]
