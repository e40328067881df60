"""Root in another user's home."""

import os

import pytest

from drumline import MLClient
from drumline.contract.errors import UsageError
from drumline.contract.ownership import check_owner

pytestmark = pytest.mark.root

ANN = 12345


@pytest.fixture
def anns(tmp_path):
    """A folder of another user's."""
    folder = tmp_path / "ann"
    folder.mkdir()
    os.chown(folder, ANN, ANN)
    return folder


@pytest.mark.parametrize("is_sudo", [True, False])
def test_root_writes_nothing_into_another_users_home(anns, monkeypatch, is_sudo):
    if is_sudo:
        monkeypatch.setenv("SUDO_UID", str(ANN))
    with pytest.raises(UsageError, match=f"is user {ANN}'s, and you are root") as caught:
        check_owner(str(anns))
    assert f"run the command as user {ANN}" in caught.value.hint


def test_under_sudo_no_home_is_made_in_the_callers_folder(anns, monkeypatch):
    home = str(anns / ".local" / "share" / "drumline")
    check_owner(home)  # A container may have such a folder for root's.
    monkeypatch.setenv("SUDO_UID", str(ANN))
    with pytest.raises(UsageError, match="could not use it any more"):
        check_owner(home)


def test_a_home_of_roots_is_roots(tmp_path, monkeypatch):
    monkeypatch.setenv("SUDO_UID", str(ANN))
    check_owner(str(tmp_path / "new" / "home"))


def test_the_command_and_the_client_refuse_before_anything_is_made(cli, anns, monkeypatch):
    monkeypatch.setenv("DRUMLINE_HOME", str(anns))
    for arguments in (["job", "list"], ["run", "--", "true"], ["compute", "list"]):
        result = cli(*arguments)
        assert (result.rc, result.out) == (2, "")
        assert f"the home {anns} is user {ANN}'s, and you are root" in result.err
    with pytest.raises(UsageError):
        MLClient()
    assert list(anns.iterdir()) == []
