import os
import stat

import pytest

from drumline.contract.errors import PlanError
from drumline.staging import snapshot


@pytest.fixture
def code(tmp_path):
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "a").write_text("a")
    return folder


@pytest.fixture
def take(code, tmp_path):
    return lambda: snapshot.take(str(code), str(tmp_path / "home"))


def test_equal_folders_have_equal_names_wherever_they_are(code, take, tmp_path):
    first = take()
    code.rename(tmp_path / "moved")
    assert first == snapshot.take(str(tmp_path / "moved"), str(tmp_path / "home"))


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
    folder = snapshot.path_of(str(tmp_path / "home"), take().digest)
    modes = {name: stat.S_IMODE(os.stat(os.path.join(folder, name)).st_mode) for name in os.listdir(folder)}
    assert modes == {"a": 0o400, "x": 0o500}


def test_a_copy_is_writable_and_keeps_what_can_be_executed(code, take, tmp_path):
    (code / "x").write_text("")
    (code / "x").chmod(0o755)
    snapshot.lay_out(str(tmp_path / "home"), take().digest, str(tmp_path / "copy"))
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "copy").iterdir()}
    assert modes == {"a": 0o600, "x": 0o700}


def changing(code, times, monkeypatch):
    """The file grows after it was looked at, this many times."""
    real = snapshot._digest
    left = [times]

    def digest(files):
        result = real(files)
        if files[0].source.startswith(str(code)) and left[0]:
            left[0] -= 1
            with (code / "a").open("a") as file:
                file.write("more")
        return result

    monkeypatch.setattr(snapshot, "_digest", digest)


def test_a_file_that_changes_during_the_copy_is_copied_again(code, take, monkeypatch, tmp_path):
    changing(code, 2, monkeypatch)
    taken = take()
    stored = tmp_path / "home" / "snapshots" / taken.digest / "a"
    assert stored.read_text() == "amoremore"
    assert [taken.digest] == os.listdir(tmp_path / "home" / "snapshots")


def test_a_file_that_never_stops_changing_is_refused_and_leaves_nothing(code, take, monkeypatch, tmp_path):
    changing(code, 99, monkeypatch)
    with pytest.raises(PlanError, match="keeps changing"):
        take()
    assert os.listdir(tmp_path / "home" / "snapshots") == []


def test_a_file_that_vanishes_is_refused(code, take, monkeypatch):
    real = snapshot._list

    def listing(*arguments):
        files = real(*arguments)
        (code / "a").unlink()
        return files

    monkeypatch.setattr(snapshot, "_list", listing)
    with pytest.raises(PlanError, match=r"could not take the code: No such file or directory: .*/code/a"):
        take()


def test_a_folder_that_is_ignored_is_not_looked_into(code, take):
    (code / ".gitignore").write_text("secret/\n")
    (code / "secret").mkdir()
    (code / "secret" / "link").symlink_to("/")
    assert take().skipped == ()


def test_sizes_and_counts_are_told(code, take):
    (code / "b").write_text("12345")
    assert (take().size_bytes, take().file_count) == (6, 2)
