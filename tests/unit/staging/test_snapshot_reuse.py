"""What has not changed is neither read nor copied; and what could have changed is."""

import os
import shutil

import pytest

from drumline.staging import file_copy
from drumline.staging.snapshot.partial_folder import copy_snapshot, snapshot_path
from drumline.staging.snapshot.take import take_snapshot


@pytest.fixture
def code(tmp_path):
    folder = tmp_path / "code"
    (folder / "sub").mkdir(parents=True)
    for name in ("a", "b", "sub/c"):
        (folder / name).write_text(name)
    return folder


@pytest.fixture
def home(tmp_path):
    return str(tmp_path / "home")


@pytest.fixture
def take(code, home):
    """Take the code; the folder of the snapshot."""
    return lambda: snapshot_path(home, take_snapshot(str(code), home).digest)


def read_of(code, opened):
    names = ("a", "b", "sub/c")
    return sorted(name for name in names if str(code / name) in opened)


def inode(*parts):
    return os.stat(os.path.join(*parts)).st_ino


def test_code_that_has_not_changed_is_not_read(code, take, settled, opened):
    first = take()
    assert read_of(code, opened) == ["a", "b", "sub/c"]
    opened.clear()
    assert take() == first
    assert read_of(code, opened) == []
    assert "link" not in opened


def test_one_changed_file_is_read_and_copied_and_the_others_are_linked(code, take, settled, opened):
    first = take()
    (code / "b").write_text("changed")
    opened.clear()
    second = take()
    assert read_of(code, opened) == ["b"]
    assert opened.count("link") == 2
    assert [inode(first, name) == inode(second, name) for name in ("a", "b", "sub/c")] == [True, False, True]
    with open(os.path.join(second, "b")) as file:
        assert file.read() == "changed"


def test_a_file_that_was_removed_or_added_costs_no_other(code, take, settled, opened):
    take()
    (code / "b").unlink()
    (code / "sub" / "new").write_text("new")
    opened.clear()
    second = take()
    assert read_of(code, opened) == []
    assert sorted(os.listdir(second)) == ["a", "sub"]
    assert sorted(os.listdir(os.path.join(second, "sub"))) == ["c", "new"]


def test_a_file_that_was_written_anew_with_what_it_held_is_linked_too(code, take, settled):
    first = take()
    (code / "a").unlink()
    (code / "a").write_text("a")
    (code / "b").write_text("changed")
    second = take()
    assert inode(first, "a") == inode(second, "a")


def test_a_file_that_can_be_executed_now_is_another_one(code, take, settled):
    first = take()
    (code / "a").chmod(0o755)
    second = take()
    assert inode(first, "a") != inode(second, "a")
    assert os.stat(os.path.join(second, "a")).st_mode & 0o777 == 0o500


def test_a_file_that_was_changed_just_now_is_not_trusted(code, take, opened):
    """Within a step of the file system's clock it could change again, and nothing would tell."""
    take()
    opened.clear()
    take()
    assert read_of(code, opened) == ["a", "b", "sub/c"]


def test_times_that_were_set_back_hide_nothing(code, take, settled):
    os.utime(code / "a", (1e9, 1e9))
    first = take()
    (code / "a").write_text("A")
    os.utime(code / "a", (1e9, 1e9))
    assert take() != first


def test_stamps_differ_in_whatever_can_be_changed(tmp_path):
    path = tmp_path / "file"
    path.write_text("x")
    seen = {file_copy.stamp_of(path.stat())}
    for change in (
        lambda: path.write_text("xy"),
        lambda: os.utime(path, ns=(1, 1)),
        lambda: os.utime(path, ns=(-1, -1)),
        lambda: path.chmod(0o700),
        lambda: path.rename(tmp_path / "other") and (tmp_path / "other").rename(path),
        lambda: shutil.copy2(path, tmp_path / "copy") and (tmp_path / "copy").replace(path),
    ):
        change()
        seen.add(file_copy.stamp_of(path.stat()))
    assert len(seen) == 7


def test_code_of_another_folder_with_equal_content_is_the_same_snapshot(code, take, home, tmp_path):
    first = take()
    shutil.copytree(code, tmp_path / "clone")
    assert snapshot_path(home, take_snapshot(str(tmp_path / "clone"), home).digest) == first


@pytest.mark.parametrize("harm", ["removed", "cut", "changed", "folder"])
def test_without_what_is_remembered_all_is_read_again(code, take, home, settled, opened, harm):
    first = take()
    (index,) = (os.path.join(home, "snapshot-index", name) for name in os.listdir(home + "/snapshot-index"))
    with open(index, "rb") as file:
        data = file.read()
    os.unlink(index)
    if harm == "folder":
        os.mkdir(index)
    elif harm != "removed":
        with open(index, "wb") as file:
            file.write(data[:-40] if harm == "cut" else data[:80] + b"\0" + data[81:])
    opened.clear()
    assert take() == first
    assert read_of(code, opened) == ["a", "b", "sub/c"]


def test_a_snapshot_that_was_removed_is_made_again(code, take, settled):
    first = take()
    shutil.rmtree(first)
    assert take() == first
    with open(os.path.join(first, "sub", "c")) as file:
        assert file.read() == "sub/c"


def test_a_snapshot_of_an_older_version_is_used_as_it_is(code, take, home, settled):
    """Before there were links and an index, the folder was all there was."""
    first = take()
    shutil.rmtree(os.path.join(home, "snapshot-index"))
    before = inode(first, "a")
    assert take() == first
    assert inode(first, "a") == before
    (code / "b").write_text("changed")
    assert inode(take(), "a") == before


def test_where_links_are_not_to_be_had_files_are_copied(code, take, settled, monkeypatch):
    def refuse(*_, **__):
        raise OSError(31, "Too many links")

    first = take()
    monkeypatch.setattr(os, "link", refuse)
    (code / "b").write_text("changed")
    second = take()
    assert inode(first, "a") != inode(second, "a")
    with open(os.path.join(second, "a")) as file:
        assert file.read() == "a"


def test_what_a_job_does_to_its_code_is_not_done_to_the_snapshot(code, take, home, tmp_path):
    stored = take()
    copy = tmp_path / "copy"
    copy_snapshot(home, os.path.basename(stored), str(copy))
    assert inode(copy, "a") != inode(stored, "a")
    (copy / "a").write_text("broken")
    with open(os.path.join(stored, "a")) as file:
        assert file.read() == "a"


def test_what_is_put_together_anew_is_compared_with_what_it_was(code, home, tmp_path, settled):
    def take(name):
        shutil.copytree(code, tmp_path / name)
        return snapshot_path(home, take_snapshot(str(tmp_path / name), home, known_as="merged").digest)

    first = take("one")
    (code / "b").write_text("changed")
    second = take("two")
    assert inode(first, "a") == inode(second, "a")
    assert len(os.listdir(os.path.join(home, "snapshot-index"))) == 1


def test_folders_that_were_not_taken_for_long_are_forgotten(code, home, monkeypatch):
    from drumline.staging.snapshot import code_files

    monkeypatch.setattr(code_files, "_MOST_FOLDERS", 4)
    for number in range(6):
        take_snapshot(str(code), home, known_as=str(number))
    assert len(os.listdir(os.path.join(home, "snapshot-index"))) <= 4


def test_a_file_that_changes_while_the_others_are_linked(code, take, settled, on_open, monkeypatch):
    """Nothing is stored any more of what is to be linked, and the last of it changes before it is copied instead."""
    first = take()
    (code / "b").write_text("changed")
    shutil.rmtree(os.path.join(first, "sub"))
    on_open(code / "sub" / "c", lambda: (code / "sub" / "c").write_text("other"), times=1)
    second = take()
    assert inode(first, "a") == inode(second, "a")
    assert [open_text(os.path.join(second, name)) for name in ("b", "sub/c")] == ["changed", "other"]


def open_text(path):
    with open(path) as file:
        return file.read()
