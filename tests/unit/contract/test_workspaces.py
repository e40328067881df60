"""Which home is current: by a block, by the variable, by neither."""

import threading

import pytest

from drumline.contract import folder
from drumline.contract.errors import UsageError
from drumline.contract.folder import RunFolder, base_home, home, workspace


def test_the_home_is_that_of_the_innermost_block_else_the_variables(drumline_home, monkeypatch):
    base = str(drumline_home)
    assert (home(), base_home()) == (base, base)
    monkeypatch.setenv("DRUMLINE_WORKSPACE", "set")
    assert home() == f"{base}/workspaces/set"
    with workspace("a"):
        assert home() == f"{base}/workspaces/a"
        with workspace(""):
            assert home() == base
        with workspace(None):
            assert home() == f"{base}/workspaces/set"
        assert home() == f"{base}/workspaces/a"
        assert base_home() == base
    assert home() == f"{base}/workspaces/set"


def test_the_folder_of_a_compute_has_the_same_workspaces(drumline_home):
    assert home("/shared") == "/shared"
    with workspace("a"):
        assert home("/shared") == "/shared/workspaces/a"
        assert RunFolder.for_job("x", home("/shared")).path == "/shared/workspaces/a/jobs/x"


def test_a_block_is_of_its_thread_alone(drumline_home):
    seen = []
    with workspace("a"):
        thread = threading.Thread(target=lambda: seen.append(folder.current_workspace()))
        thread.start()
        thread.join()
    assert seen == [""]


def test_a_run_folder_knows_its_workspace(drumline_home):
    with workspace("a"):
        assert RunFolder.for_job("x").workspace == "a"
    assert RunFolder.for_job("x").workspace == ""
    assert RunFolder("/shared/workspaces/a/jobs/x").workspace == ""


@pytest.mark.parametrize(
    "name", ["..", ".", "a/b", "/a", "-w", ".hidden", "a b", "a\n", "ä", "x" * 65, "a\0"]
)
def test_a_name_that_is_no_folders_is_refused(name, monkeypatch):
    with pytest.raises(UsageError, match="cannot be a workspace's name"), workspace(name):
        pass
    if "\0" not in name:
        monkeypatch.setenv("DRUMLINE_WORKSPACE", name)
        with pytest.raises(UsageError, match=r"DRUMLINE_WORKSPACE: .* cannot be a workspace's name"):
            home()


def test_names_are_those_of_folders(drumline_home):
    assert folder.workspace_names() == []
    for name in ("b", "a.1", ".a.1.deleted"):
        (drumline_home / "workspaces" / name).mkdir(parents=True)
    (drumline_home / "workspaces" / "file").touch()
    assert folder.workspace_names() == ["a.1", "b"]
