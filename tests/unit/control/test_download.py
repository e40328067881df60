"""Downloads of what a job left: holes stay holes, room is looked for, and no file is half there under its name."""

import errno
import os
import shutil
import stat

import pytest

from drumline.contract import events as e
from drumline.contract.errors import DrumlineError
from drumline.contract.folder import RunFolder
from drumline.control.jobs.download import copy, download
from drumline.staging import file_copy


@pytest.fixture
def outputs(drumline_home):
    """The outputs of a job that has ended."""
    folder = RunFolder.for_job("j")
    folder.create()
    folder.begin(e.JobSubmitted(1.0, "me"))
    folder.write(folder.plan, "{}")
    folder.append(e.JobEnded(2.0, "Completed", 0, ""))
    return folder.outputs


@pytest.mark.parametrize("size", [1 << 17, 1 << 30])
def test_holes_stay_holes(outputs, tmp_path, size):
    with open(os.path.join(outputs, "sparse"), "wb") as file:
        file.truncate(size)
        os.pwrite(file.fileno(), b"x", size // 2)
    download("j", str(tmp_path / "out"))
    facts = (tmp_path / "out" / "artifacts" / "outputs" / "sparse").stat()
    assert facts.st_size == size
    assert facts.st_blocks * 512 < size // 4


def test_a_copy_is_as_its_original(outputs, tmp_path):
    path = os.path.join(outputs, "script")
    with open(path, "wb") as file:
        file.write(b"text" * 100_000)
    os.chmod(path, 0o750)
    os.utime(path, (1000, 1000))
    target = tmp_path / "artifacts" / "outputs" / "script"
    target.parent.mkdir(parents=True)
    target.write_text("what was there")
    download("j", str(tmp_path))
    facts = target.stat()
    assert target.read_bytes() == b"text" * 100_000
    assert (stat.S_IMODE(facts.st_mode), facts.st_mtime) == (0o750, 1000)
    assert os.listdir(target.parent) == ["script"]


def test_what_finds_no_room_is_not_begun(outputs, tmp_path, monkeypatch):
    with open(os.path.join(outputs, "big"), "wb") as file:
        file.write(os.urandom(300_000))
    found = os.statvfs(tmp_path)
    little = os.statvfs_result([*found[:4], 200_000 // found.f_frsize, *found[5:]])
    with monkeypatch.context() as patch:
        patch.setattr(os, "statvfs", lambda path: little)
        with pytest.raises(DrumlineError, match=r"has room for [\d.]+ KiB, and the copies take 29\d KiB"):
            download("j", str(tmp_path / "out"))
    assert not list((tmp_path / "out").rglob("big"))
    download("j", str(tmp_path / "out"))
    with monkeypatch.context() as patch:
        # What is there already is replaced, and one file more has room.
        patch.setattr(os, "statvfs", lambda path: os.statvfs_result([*found[:4], 100, *found[5:]]))
        download("j", str(tmp_path / "out"))


def test_a_disk_that_gets_full_leaves_no_part_under_the_name(outputs, tmp_path, monkeypatch):
    with open(os.path.join(outputs, "big"), "wb") as file:
        file.write(b"new" * 100_000)
    target = tmp_path / "artifacts" / "outputs" / "big"
    target.parent.mkdir(parents=True)
    target.write_bytes(b"old")

    def fill(source, target, told):
        os.write(target, b"new")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(file_copy, "copy_content", fill)
    with pytest.raises(DrumlineError, match="No space left on device"):
        download("j", str(tmp_path))
    assert target.read_bytes() == b"old"
    assert os.listdir(target.parent) == ["big"]
    target.unlink()
    with pytest.raises(OSError, match=f"No space left on device: '{target}'"):
        copy(os.path.join(outputs, "big"), str(target))
    assert os.listdir(target.parent) == []


def test_a_job_of_which_everything_was_removed_is_told(outputs, tmp_path):
    folder = RunFolder.for_job("j")
    for part in (outputs, folder.user_logs, folder.system_logs):
        shutil.rmtree(part)
    with pytest.raises(DrumlineError, match="outputs, user_logs, system_logs were removed"):
        download("j", str(tmp_path / "out"))


def test_no_pipe_or_device_is_replaced(tmp_path):
    (tmp_path / "file").write_text("text")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    for name in ("pipe", "link"):
        with pytest.raises(OSError, match="not a plain file"):
            copy(str(tmp_path / "file"), str(tmp_path / name))
        assert stat.S_ISFIFO((tmp_path / name).stat().st_mode)
