"""Root in another user's home."""

import os
import pwd
import tempfile
from types import SimpleNamespace

import pytest

from drumline import MLClient
from drumline.contract.errors import UsageError
from drumline.contract.ownership import check_owner

pytestmark = pytest.mark.root

ANN = 12345
BOB = 12346


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


def test_no_home_is_made_in_the_home_of_a_user_whom_root_became_without_sudo(anns, monkeypatch):
    """As ``su -m`` does; the folder of a container's user is nobody's home."""
    home = str(anns / ".local" / "share" / "drumline")
    monkeypatch.setattr(pwd, "getpwuid", lambda _: SimpleNamespace(pw_name="ann", pw_dir=str(anns)))
    with pytest.raises(UsageError, match="is ann's, and you are root"):
        check_owner(home)


@pytest.mark.parametrize("words", [["init"], ["configure", "--defaults", "workspace=lab"]])
def test_the_first_command_under_sudo_makes_no_home(cli, anns, monkeypatch, words):
    """These two write into the home itself, and into no workspace."""
    monkeypatch.setenv("SUDO_UID", str(ANN))
    monkeypatch.setenv("DRUMLINE_HOME", str(anns / ".local" / "share" / "drumline"))
    result = cli(*words)
    assert (result.rc, list(anns.iterdir())) == (2, [])
    assert "and you are root" in result.err


@pytest.mark.parametrize(
    ("mode", "below", "is_refused"),
    [
        (0o700, "", True),
        (0o777, "", True),
        (0o755, "", False),
        (0o755, "new", True),
        (0o777, "new", False),
    ],
)
def test_an_ordinary_user_is_told_whose_home_it_is(mode, below, is_refused):
    """Others' homes, open or closed, ended in "Permission denied" or a damaged index; one may be open for reading."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        os.chmod(folder, mode)
        os.chown(folder, ANN, ANN)
        assert check_as_bob(os.path.join(folder, below) if below else folder) == is_refused


def check_as_bob(home):
    """Return whether an ordinary user is refused with whose the home is."""
    child = os.fork()
    if child == 0:
        code = 2
        try:
            os.setresuid(BOB, BOB, BOB)
            check_owner(home)
            code = 0
        except UsageError as error:
            code = 1 if f"is user {ANN}'s, and you are another user" in str(error) else 3
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


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
