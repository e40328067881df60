"""The folder of a node for temporary files, while its agent runs."""

import shutil
import subprocess

import pytest
from waiting import wait_until

from drumline.node.scratch import keep_from_cleaners


@pytest.mark.skipif(not shutil.which("systemd-tmpfiles"), reason="needs systemd-tmpfiles")
def test_systemd_leaves_a_folder_that_an_agent_holds(tmp_path):
    cleaned = tmp_path / "tmp"
    for name in ("held", "left"):
        (cleaned / name / "bin").mkdir(parents=True)
        (cleaned / name / "bin" / "ssh").touch()
    rules = tmp_path / "rules.conf"
    rules.write_text(f"d {cleaned} - - - 1s\n")
    clean = ["systemd-tmpfiles", "--clean", str(rules)]
    with keep_from_cleaners(str(cleaned / "held")):
        # Folders are older than their files only after the pass that removes those.
        wait_until(
            lambda: subprocess.run(clean, check=False).returncode == 0 and not (cleaned / "left").exists(),
            30,
            "the other folder to be removed",
        )
        assert (cleaned / "held" / "bin" / "ssh").exists()
    wait_until(
        lambda: subprocess.run(clean, check=False).returncode == 0 and not (cleaned / "held").exists(),
        30,
        "the folder to be removed when nobody holds it",
    )


def test_a_folder_that_cannot_be_locked_is_used_as_it_is(tmp_path):
    with keep_from_cleaners(str(tmp_path / "missing")):
        pass
