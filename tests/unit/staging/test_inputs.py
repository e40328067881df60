import os
import socket

import pytest
from planning import plan

from drumline.contract.errors import NodeError
from drumline.contract.folder import RunFolder
from drumline.contract.plan import InputCopy
from drumline.staging.run_setup import copy_input, prepare_run


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "data"
    (folder / "sub").mkdir(parents=True)
    (folder / "a").write_text("a")
    (folder / "sub" / "b").write_text("b")
    return folder


@pytest.fixture
def target(tmp_path):
    return tmp_path / "run" / "inputs" / "data"


def found_in(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_a_folder_with_modes_and_times(data, target):
    (data / "a").chmod(0o750)
    os.utime(data / "a", (1e9, 1e9))
    (data / "sub").chmod(0o500)
    (data / "none").mkdir()
    copy_input(str(data), str(target))
    (data / "sub").chmod(0o700)
    assert found_in(target) == ["a", "none", "sub", "sub/b"]
    assert ((target / "a").stat().st_mode & 0o7777, (target / "a").stat().st_mtime) == (0o750, 1e9)
    assert os.access(target / "sub", os.W_OK)


def test_a_file(data, target):
    copy_input(str(data / "a"), str(target))
    assert target.read_text() == "a"


def test_what_is_neither_file_nor_folder_is_left_out_and_hangs_nothing(data, target, monkeypatch):
    os.mkfifo(data / "pipe")
    (data / "link").symlink_to("pipe")
    monkeypatch.chdir(data)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
    copy_input(str(data), str(target))
    assert found_in(target) == ["a", "link", "sub", "sub/b"]
    assert os.readlink(target / "link") == "pipe"


def test_a_pipe_as_the_input_is_refused(tmp_path, target):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="neither a file nor a folder"):
        copy_input(str(tmp_path / "pipe"), str(target))


def test_links_within_stay_links_and_others_become_what_they_lead_to(data, target, tmp_path):
    (tmp_path / "out" / "deep").mkdir(parents=True)
    (tmp_path / "out" / "deep" / "c").write_text("c")
    (tmp_path / "out" / "back").symlink_to(data)
    (tmp_path / "out" / "self").symlink_to(".")
    (data / "relative").symlink_to("sub/b")
    (data / "sub" / "absolute").symlink_to(data / "a")
    (data / "sub" / "circle").symlink_to("..")
    (data / "out").symlink_to(tmp_path / "out")
    (data / "file").symlink_to(tmp_path / "out" / "deep" / "c")
    (data / "nothing").symlink_to("nowhere")
    copy_input(str(data), str(target))
    links = {
        name: os.readlink(target / name) for name in ("relative", "sub/absolute", "sub/circle", "nothing")
    }
    assert links == {"relative": "sub/b", "sub/absolute": "../a", "sub/circle": "..", "nothing": "nowhere"}
    assert (target / "sub" / "absolute").read_text() == "a"
    assert not (target / "out").is_symlink()
    assert (target / "out" / "deep" / "c").read_text() == "c"
    assert (target / "file").read_text() == "c"
    assert not (target / "file").is_symlink()
    assert not os.path.lexists(target / "out" / "back")
    assert not os.path.lexists(target / "out" / "self")


def test_the_copy_of_a_link_to_a_folder_is_a_folder(data, target, tmp_path):
    (tmp_path / "link").symlink_to(data)
    copy_input(str(tmp_path / "link"), str(target))
    assert found_in(target) == ["a", "sub", "sub/b"]
    assert not target.is_symlink()


@pytest.mark.parametrize(("name", "why"), [("gone", "No such file or directory"), ("pipe", "neither a file")])
def test_what_cannot_be_copied_is_named_in_one_sentence(tmp_path, name, why):
    os.mkfifo(tmp_path / "pipe")
    folder = RunFolder(str(tmp_path / "jobs" / "job"))
    folder.create()
    source = str(tmp_path / name)
    job = plan()._replace(
        cwd=str(tmp_path), folders=(), copies=(InputCopy("x", source, os.path.join(folder.path, "x")),)
    )
    with pytest.raises(NodeError, match=f"^could not put the job in place: {why}.*: {source}$"):
        prepare_run(folder, job)
