"""Pipes and devices where Drumline keeps its own files: nobody waits for them."""

import os
import subprocess
import sys

import pytest
from waiting import PATIENCE

from drumline.contract import process_identity
from drumline.contract.errors import NotFoundError
from drumline.contract.folder import RunFolder
from drumline.control.jobs.lookup import folder_of

QUEUE = f"engines/local/{process_identity.name_machine()}/line.json"


@pytest.mark.parametrize("name", ["defaults.json", "notify.json", QUEUE])
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_a_submission_says_which_file_is_none(drumline_home, tmp_path, name, kind):
    """With a pipe in place of one of these it hung, and took no signal; of a device it read without end."""
    path = drumline_home / name
    path.parent.mkdir(parents=True)
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    argv = [sys.executable, "-m", "drumline", "run", "--", "true"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=60 * PATIENCE)
    assert done.returncode != 0
    assert f"not a plain file: {path}" in done.stdout + done.stderr


def test_a_folder_without_a_job_is_not_proposed_for_itself(drumline_home):
    """Of a submission that was killed, or that goes on: "there is no job 'x'; did you mean 'x'?"."""
    (drumline_home / "jobs" / "calm_drum").mkdir(parents=True)
    for name, hint in (("calm_drum", "holds no job"), ("calm_drun", "drumline job list")):
        with pytest.raises(NotFoundError) as caught:
            folder_of(name)
        assert hint in caught.value.hint
    assert not RunFolder.for_job("calm_drum").exists()
