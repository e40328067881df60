"""Trees that nobody would make on purpose, and some that somebody might: taken, left out in words, or refused."""

import contextlib
import os
import socket
import stat

import pytest

from drumline.contract.errors import PlanError
from drumline.staging.snapshot import code_files
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
    """Take the code; what is in the snapshot, and what was left out."""

    def run():
        taken = take_snapshot(str(code), str(tmp_path / "home"))
        return contents(snapshot_path(str(tmp_path / "home"), taken.digest)), taken.skipped

    return run


def contents(folder):
    found = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(parent, name)
            assert stat.S_ISREG(os.lstat(path).st_mode)
            with open(path, "rb") as file:
                found[os.path.relpath(path, folder)] = file.read(100)
    return found


def test_special_files_and_links_out_are_left_out(code, take, tmp_path, monkeypatch):
    os.mkfifo(code / "pipe")
    monkeypatch.chdir(code)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
    (code / "out").symlink_to("/etc/passwd")
    (code / "up").symlink_to("..")
    (code / "pipe-link").symlink_to("pipe")
    (code / "nothing").symlink_to("nowhere")
    (tmp_path / "code-beside").mkdir()
    (code / "beside").symlink_to(tmp_path / "code-beside")
    assert take() == (
        {"a": b"a"},
        (
            "beside: a link to outside the folder",
            "nothing: a link to nothing",
            "out: a link to outside the folder",
            "pipe-link: neither a file nor a folder",
            "pipe: neither a file nor a folder",
            "socket: neither a file nor a folder",
            "up: a link to outside the folder",
        ),
    )


def pipe_at(path, tmp_path):
    os.mkfifo(path)


def link_at(path, tmp_path):
    (tmp_path / "secret").write_text("a")
    path.symlink_to(tmp_path / "secret")


def socket_at(path, tmp_path):
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.getcwd()
        os.chdir(path.parent)
        try:
            listener.bind(path.name)
        finally:
            os.chdir(here)


def folder_at(path, tmp_path):
    path.mkdir()


@pytest.mark.parametrize("swapped_in", [pipe_at, link_at, socket_at, folder_at])
def test_a_file_that_is_swapped_after_it_was_listed_neither_hangs_nor_leads_out(
    code, take, on_open, tmp_path, swapped_in
):
    (code / "b").write_text("b")

    def swap():
        (code / "b").unlink()
        swapped_in(code / "b", tmp_path)

    on_open(code / "b", swap, times=1)
    assert take()[0] == {"a": b"a"}


@pytest.mark.parametrize("times", [1, 1_000_000])
def test_a_folder_that_is_swapped_for_a_link_leads_nowhere(code, take, on_open, tmp_path, times):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "secret").write_text("secret")
    (code / "sub").mkdir()
    (code / "sub" / "secret").write_text("known")

    def swap():
        os.rename(code / "sub", tmp_path / f"sub-{os.urandom(4).hex()}")
        (code / "sub").symlink_to(tmp_path / "elsewhere")

    on_open(code / "sub", swap, times=1)
    found, skipped = take()
    assert found == {"a": b"a"}
    assert skipped == ("sub: a link to outside the folder",)


def test_a_folder_that_is_swapped_between_listing_and_reading_leads_nowhere(code, take, on_open, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "secret").write_text("secret")
    (code / "sub").mkdir()
    (code / "sub" / "secret").write_text("known")

    def swap():
        os.rename(code / "sub", tmp_path / "sub")
        (code / "sub").symlink_to(tmp_path / "elsewhere")

    on_open(code / "sub" / "secret", swap, times=1)
    assert take()[0] == {"a": b"a"}


def test_folders_that_link_to_each_other_end(code, take):
    for name in ("x", "y"):
        (code / name).mkdir()
        (code / name / "file").write_text(name)
    (code / "x" / "y").symlink_to("../y")
    (code / "y" / "x").symlink_to("../x")
    found, skipped = take()
    assert set(found) == {"a", "x/file", "x/y/file", "y/file", "y/x/file"}
    assert skipped == (
        "x/y/x: a link to a folder that it is in",
        "y/x/y: a link to a folder that it is in",
    )


def test_links_that_multiply_have_an_end(code, take, monkeypatch):
    monkeypatch.setattr(code_files, "MOST_ENTRIES", 2000)
    for depth in range(30):
        (code / f"d{depth}").mkdir()
        (code / f"d{depth}" / "one").symlink_to(f"../d{depth + 1}")
        (code / f"d{depth}" / "two").symlink_to(f"../d{depth + 1}")
    (code / "d30").mkdir()
    with pytest.raises(PlanError, match="has more than 2,000 files") as refused:
        take()
    assert "amlignore" in refused.value.hint


def deep(folder, depth):
    """So many folders within each other, however long their path is."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=descriptor)
        below = os.open("d", os.O_RDONLY | os.O_DIRECTORY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    os.close(os.open("leaf", os.O_CREAT | os.O_WRONLY, dir_fd=descriptor))
    os.close(descriptor)


def flatten(folder):
    """Remove what ``deep`` made: a path at a time is too long for it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        while True:
            os.rename("d/d", "next", src_dir_fd=descriptor, dst_dir_fd=descriptor)
            os.rmdir("d", dir_fd=descriptor)
            os.rename("next", "d", src_dir_fd=descriptor, dst_dir_fd=descriptor)
    except FileNotFoundError:
        os.unlink("d/leaf", dir_fd=descriptor)
        os.rmdir("d", dir_fd=descriptor)
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("depth", [201, 10_000] if os.environ.get("DRUMLINE_SLOW") else [201])
def test_folders_far_within_each_other_are_refused_in_words(code, take, depth):
    deep(code, depth)
    try:
        with pytest.raises(PlanError, match="the code is more than 200 folders deep: d/d/d/"):
            take()
    finally:
        flatten(code)


def test_two_hundred_folders_within_each_other_are_taken_and_laid_out(code, take, tmp_path):
    deep(code, 200)
    found, _ = take()
    assert set(found) == {"a", "d/" * 200 + "leaf"}
    digest = os.listdir(tmp_path / "home" / "snapshots")[0]
    copy_snapshot(str(tmp_path / "home"), digest, str(tmp_path / "copy"))
    assert contents(tmp_path / "copy") == found


@pytest.mark.parametrize(
    "name", ["a 0", "a'; echo foo", "a\n0", "$(touch x)", "ü", "-rf", "\udcff", "*", "A"]
)
def test_any_name_is_kept_and_known_again(code, take, name, settled, opened):
    (code / name).write_text("x")
    (code / "sub").mkdir()
    (code / "sub" / name).write_text("y")
    expected = {"a": b"a", name: b"x", f"sub/{name}": b"y"}
    assert take()[0] == expected
    opened.clear()
    assert take()[0] == expected
    assert not any(str(path).startswith(str(code / name)) for path in opened)


def test_a_file_without_bytes_and_a_sparse_one(code, tmp_path):
    (code / "empty").write_text("")
    size = (16 << 20) + 17
    with (code / "sparse").open("wb") as file:
        file.write(b"begin")
        file.seek(8 << 20)
        file.write(b"middle")
        file.truncate(size)
    (code / "all-hole").touch()
    os.truncate(code / "all-hole", 1 << 20)
    home = str(tmp_path / "home")
    taken = take_snapshot(str(code), home)
    assert taken.size_bytes == size + (1 << 20) + 1
    copy_snapshot(home, taken.digest, str(tmp_path / "copy"))
    for folder in (snapshot_path(home, taken.digest), str(tmp_path / "copy")):
        facts = os.stat(os.path.join(folder, "sparse"))
        assert (facts.st_size, facts.st_blocks * 512 < 4 << 20) == (size, True)
        with open(os.path.join(folder, "sparse"), "rb") as copy, (code / "sparse").open("rb") as original:
            assert copy.read() == original.read()
        assert os.path.getsize(os.path.join(folder, "all-hole")) == 1 << 20
    # With its holes filled the content is the same, and so is the name.
    (code / "sparse").write_bytes((code / "sparse").read_bytes())
    assert take_snapshot(str(code), home).digest == taken.digest


def test_hard_links_within_the_code_are_files_of_their_own(code, take, tmp_path):
    os.link(code / "a", code / "twin")
    assert take()[0] == {"a": b"a", "twin": b"a"}


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: os.symlink("nowhere", path)])
def test_code_that_is_neither_folder_nor_file_is_refused(tmp_path, make):
    make(str(tmp_path / "odd"))
    with pytest.raises(
        PlanError, match=r"is neither a folder nor a file|No such file or directory: .*nowhere"
    ):
        take_snapshot(str(tmp_path / "odd"), str(tmp_path / "home"))


def test_no_files_at_all_are_refused(tmp_path):
    (tmp_path / "empty" / "sub").mkdir(parents=True)
    with pytest.raises(PlanError, match="has no files to take"):
        take_snapshot(str(tmp_path / "empty"), str(tmp_path / "home"))


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_cannot_be_read_is_refused_by_its_name(code, take, tmp_path, kind):
    locked = code / "locked"
    if kind == "file":
        locked.write_text("")
    else:
        locked.mkdir()
    locked.chmod(0)
    try:
        with as_nobody(tmp_path), pytest.raises(PlanError) as refused:
            take()
    finally:
        locked.chmod(0o700)
    assert refused.value.message == f"could not take the code: Permission denied: {locked}"
    assert refused.value.hint == "an .amlignore file says what to leave out"


@contextlib.contextmanager
def as_nobody(folder):
    """Root may read everything: be somebody else meanwhile, who may look into the folder."""
    if os.geteuid() != 0:
        yield
        return
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.parents)}
    try:
        for path, mode in modes.items():
            path.chmod(0o777 if path == folder else mode | 0o011)
        os.seteuid(65534)
        yield
    finally:
        os.seteuid(0)
        for path, mode in modes.items():
            path.chmod(mode)
