"""Digests of data: equal where the data is, quick where it has not changed, and never waiting for ever."""

import os

import pytest

from drumline.control.driver import reuse
from drumline.control.driver.reuse import digest_of
from drumline.staging import file_copy


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "data"
    (folder / "below").mkdir(parents=True)
    (folder / "a").write_text("1")
    (folder / "below" / "b").write_text("2")
    return folder


def copy_of(folder):
    import shutil

    return shutil.copytree(folder, folder.with_name("copy"), symlinks=True)


def test_equal_folders_are_equal_wherever_they_are(data):
    assert digest_of(str(data)) == digest_of(str(copy_of(data)))


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / "a").write_text("3"),
        lambda folder: (folder / "a").rename(folder / "c"),
        lambda folder: (folder / "c").touch(),
        lambda folder: (folder / "empty").mkdir(),
        lambda folder: (folder / "a").chmod(0o755),
        lambda folder: (folder / "below" / "b").unlink(),
        lambda folder: (folder / "below").rename(folder / "above"),
        lambda folder: (folder / "link").symlink_to("a"),
        lambda folder: (folder / "link").symlink_to("nowhere"),
    ],
)
@pytest.mark.parametrize("most_bytes", [reuse.MOST_BYTES, 1])
def test_every_change_is_seen(data, change, most_bytes, monkeypatch):
    monkeypatch.setattr(reuse, "MOST_BYTES", most_bytes)
    before = digest_of(str(data))
    assert digest_of(str(data)) == before
    change(data)
    assert digest_of(str(data)) != before


def test_a_file_is_told_by_its_content(data):
    (data / "other").write_text("1")
    assert digest_of(str(data / "a")) == digest_of(str(data / "other"))
    assert digest_of(str(data / "a")) != digest_of(str(data / "below" / "b"))


def test_links_are_followed_but_not_in_circles(data, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "x").write_text("1")
    (data / "link").symlink_to(tmp_path / "elsewhere")
    (data / "loop").symlink_to(data)
    (data / "below" / "loop").symlink_to("../below")
    before = digest_of(str(data))
    (tmp_path / "elsewhere" / "x").write_text("2")
    assert digest_of(str(data)) != before


def test_a_large_file_that_has_not_changed_is_read_once(data, monkeypatch):
    monkeypatch.setattr(reuse, "_WORTH_BYTES", 1)
    monkeypatch.setattr(file_copy, "SETTLED_S", -60.0)
    before = digest_of(str(data))
    opened = []
    monkeypatch.setattr(reuse, "_read_digest", lambda file, real: opened.append(real))
    assert (digest_of(str(data)), opened) == (before, [])


def test_a_file_that_was_changed_just_now_is_read_again(data, drumline_home, monkeypatch):
    """Its time of writing can be set back; that of the change of what is known of it cannot."""
    monkeypatch.setattr(reuse, "_WORTH_BYTES", 1)
    os.utime(data / "a", (1e9, 1e9))
    digest_of(str(data))
    assert not (drumline_home / "reuse").exists()


@pytest.mark.parametrize("swapped_in", ["pipe", "changed"])
def test_a_file_that_is_swapped_meanwhile_is_refused_and_hangs_nothing(data, monkeypatch, swapped_in):
    listed = reuse._files

    def swap(*arguments):
        files = listed(*arguments)
        (data / "a").unlink()
        os.mkfifo(data / "a") if swapped_in == "pipe" else (data / "a").write_text("changed")
        return files

    monkeypatch.setattr(reuse, "_files", swap)
    with pytest.raises(OSError, match="changed while it was compared"):
        digest_of(str(data))


def test_what_was_remembered_may_be_damaged(data, drumline_home):
    before = digest_of(str(data))
    (drumline_home / "reuse").mkdir(parents=True)
    for text in ("", "[]", '{"/": 3}', "[" * 100_000):
        (drumline_home / "reuse" / "contents.json").write_text(text)
        assert digest_of(str(data)) == before


@pytest.mark.parametrize("path", ["/dev/zero", "pipe", "nowhere"])
def test_what_is_no_file_is_refused(tmp_path, path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match=r"neither a file|No such file"):
        digest_of(str(tmp_path / path))


def test_a_folder_with_a_pipe_is_refused(data):
    os.mkfifo(data / "pipe")
    with pytest.raises(OSError, match="neither a file"):
        digest_of(str(data))


@pytest.mark.parametrize(("limit", "value"), [("MOST_FILES", 1), ("MOST_S", -1.0)])
def test_too_much_to_compare_is_not_compared(data, limit, value, monkeypatch):
    monkeypatch.setattr(reuse, limit, value)
    with pytest.raises(OSError, match="too m"):
        digest_of(str(data))
