import os
import stat

import pytest

from drumline.contract.errors import PlanError
from drumline.staging.snapshot.partial_folder import copy_snapshot, snapshot_path
from drumline.staging.snapshot.take import take_snapshot


@pytest.fixture
def code(tmp_path):
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "a").write_text("a")
    return folder


@pytest.fixture
def take(code, tmp_path):
    return lambda: take_snapshot(str(code), str(tmp_path / "home"))


def test_equal_folders_have_equal_names_wherever_they_are(code, take, tmp_path):
    first = take()
    code.rename(tmp_path / "moved")
    assert first == take_snapshot(str(tmp_path / "moved"), str(tmp_path / "home"))


@pytest.mark.parametrize(
    "change",
    [
        lambda code: (code / "a").write_text("b"),
        lambda code: (code / "a").rename(code / "b"),
        lambda code: (code / "a").chmod(0o755),
        lambda code: (code / "b").write_text(""),
        lambda code: (code / "a").unlink() or (code / "a").mkdir() or (code / "a" / "a").write_text("a"),
    ],
)
def test_any_difference_has_another_name(code, take, change):
    before = take().digest
    change(code)
    assert before != take().digest


def test_what_is_stored_cannot_be_changed_by_accident(code, take, tmp_path):
    (code / "x").write_text("")
    (code / "x").chmod(0o777)
    folder = snapshot_path(str(tmp_path / "home"), take().digest)
    modes = {name: stat.S_IMODE(os.stat(os.path.join(folder, name)).st_mode) for name in os.listdir(folder)}
    assert modes == {"a": 0o400, "x": 0o500}


def test_a_copy_is_writable_and_keeps_what_can_be_executed(code, take, tmp_path):
    (code / "x").write_text("")
    (code / "x").chmod(0o755)
    copy_snapshot(str(tmp_path / "home"), take().digest, str(tmp_path / "copy"))
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "copy").iterdir()}
    assert modes == {"a": 0o600, "x": 0o700}


def append(path):
    with path.open("a") as file:
        file.write("more")


def test_a_file_that_changes_while_it_is_read_is_read_again(code, take, on_open, tmp_path):
    path = code / "a"
    on_open(path, lambda: append(path), times=2)
    taken = take()
    assert (tmp_path / "home" / "snapshots" / taken.digest / "a").read_text() == "amoremore"
    assert [taken.digest] == os.listdir(tmp_path / "home" / "snapshots")


def test_a_file_that_never_stops_changing_is_refused_by_its_name_and_leaves_nothing(
    code, take, on_open, tmp_path
):
    (code / "b").write_text("b")
    on_open(code / "a", lambda: append(code / "a"))
    with pytest.raises(PlanError, match=r"keeps changing while it is being copied: .*/code/a\n") as refused:
        take()
    assert "an .amlignore file says what to leave out" in refused.value.hint
    assert list(tmp_path.glob("home/snapshots/*")) == []


def test_two_files_are_of_one_moment(code, take, on_open, tmp_path):
    """When b is read, a was read already: both are changed, and both are taken as they are then."""
    (code / "b").write_text("b")

    def change():
        (code / "a").write_text("new")
        (code / "b").write_text("new")

    on_open(code / "b", change, times=1)
    folder = tmp_path / "home" / "snapshots" / take().digest
    assert [(folder / name).read_text() for name in "ab"] == ["new", "new"]


def test_a_file_that_comes_goes_or_becomes_a_folder_meanwhile(code, take, on_open, tmp_path):
    for name in ("b", "c"):
        (code / name).write_text(name)
    (code / "z" / "y").mkdir(parents=True)
    (code / "z" / "y" / "x").write_text("")

    def change():
        (code / "a").unlink()
        (code / "b").unlink()
        (code / "b").mkdir()
        (code / "b" / "inner").write_text("inner")
        (code / "z" / "y" / "x").unlink()
        (code / "new").write_text("new")

    on_open(code / "z" / "y" / "x", change, times=1)
    folder = tmp_path / "home" / "snapshots" / take().digest
    found = sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
    assert found == ["b", "b/inner", "c", "new"]


def test_something_ignored_that_comes_and_goes_all_the_time_is_no_change(code, take, on_open):
    (code / ".amlignore").write_text("*.log\n")

    def come_and_go():
        (code / "x.log").write_text("")
        (code / "x.log").unlink()

    on_open(code / "a", come_and_go)
    on_open(code, come_and_go)
    assert take().file_count == 2


def test_a_pattern_that_is_none_is_refused_with_its_line(code, take):
    (code / ".amlignore").write_text("*.log\n!\n")
    with pytest.raises(PlanError, match=r"/code/.amlignore:2: not a pattern of an ignore file"):
        take()


def test_what_takes_long_is_said_once(code, tmp_path, monkeypatch):
    monkeypatch.setattr("drumline.staging.snapshot.take.SLOW_S", -1.0)
    (code / "b").write_text("")
    said = []
    take_snapshot(str(code), str(tmp_path / "home"), said.append)
    assert said == [2]


def test_a_folder_that_is_ignored_is_not_looked_into(code, take):
    (code / ".gitignore").write_text("secret/\n")
    (code / "secret").mkdir()
    (code / "secret" / "link").symlink_to("/")
    assert take().skipped == ()


def test_sizes_and_counts_are_told(code, take):
    (code / "b").write_text("12345")
    assert (take().size_bytes, take().file_count) == (6, 2)


@pytest.mark.parametrize("settled", [True, False])
def test_what_was_removed_or_cut_short_of_a_snapshot_is_mended(code, take, tmp_path, settled):
    (code / "sub").mkdir()
    for path, text in (("a", "first"), ("sub/b", "second"), ("c", "third")):
        (code / path).write_text(text)
        if settled:  # Else it is read anew, because it may change again within its time stamp.
            os.utime(code / path, (1e9, 1e9))
    before = take()
    folder = tmp_path / "home" / "snapshots" / before.digest
    (folder / "a").unlink()
    (folder / "sub" / "b").unlink()
    (folder / "sub").rmdir()
    (folder / "c").unlink()
    (folder / "c").write_text("thi")
    assert take() == before
    assert [(folder / path).read_text() for path in ("a", "sub/b", "c")] == ["first", "second", "third"]
    assert not list((tmp_path / "home" / "snapshots").glob("*.partial"))
