"""Which paths are on a network file system, by a table of mounts like that of the kernel."""

import os

import pytest

from drumline.contract.ownership import is_network

LOCAL = "22 1 0:20 / / rw,relatime shared:1 - ext4 /dev/sda1 rw"


def mounts(tmp_path, *lines):
    table = tmp_path / "mountinfo"
    table.write_bytes(b"".join(line if isinstance(line, bytes) else line.encode() for line in _ended(lines)))
    return str(table)


def _ended(lines):
    return [line + (b"\n" if isinstance(line, bytes) else "\n") for line in (LOCAL, *lines)]


def mount(place, kind, optional="shared:7 master:2 "):
    return f"40 22 0:40 / {place} rw,nosuid {optional}- {kind} server:/export rw,vers=4"


@pytest.mark.parametrize(
    "kind",
    [
        "nfs",
        "nfs4",
        "lustre",
        "gpfs",
        "beegfs",
        "ceph",
        "cifs",
        "9p",
        "virtiofs",
        "fuse.sshfs",
        "fuse.glusterfs",
    ],
)
def test_these_are(tmp_path, kind):
    table = mounts(tmp_path, mount("/net", kind))
    assert is_network("/net/ann/drumline", table)
    assert is_network("/net", table)
    assert not is_network("/network", table)
    assert not is_network("/home", table)


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "fuseblk", "nfsd", ""])
def test_these_are_not(tmp_path, kind):
    assert not is_network("/net/ann", mounts(tmp_path, mount("/net", kind)))


def test_the_longest_place_counts(tmp_path):
    table = mounts(
        tmp_path, mount("/net", "nfs"), mount("/net/scratch", "xfs"), mount("/net/scratch/far", "lustre")
    )
    paths = ("/net/a", "/net/scratch/a", "/net/scratch/far/a", "/net/scratchy")
    assert [is_network(path, table) for path in paths] == [True, False, True, True]


def test_of_two_at_one_place_the_last_is_on_top(tmp_path):
    automounted = (mount("/home", "autofs"), mount("/home", "nfs4"))
    assert is_network("/home/ann", mounts(tmp_path, *automounted))
    assert not is_network("/home/ann", mounts(tmp_path, *automounted[::-1]))


def test_the_root_may_be_one(tmp_path):
    assert is_network("/anything", mounts(tmp_path, mount("/", "nfs")))
    assert not is_network("/net/x", mounts(tmp_path, mount("/", "nfs"), mount("/net", "ext4")))


def test_places_with_blanks_and_backslashes(tmp_path):
    table = mounts(tmp_path, mount(r"/my\040net\011x\134y", "nfs"))
    assert is_network("/my net\tx\\y/ann", table)
    assert not is_network(r"/my\040net", table)


def test_a_place_that_is_no_text_does_not_hide_the_others(tmp_path):
    odd = b"41 22 0:41 / /\xff\xfe rw - nfs server:/ rw"
    table = mounts(tmp_path, odd, mount("/net", "nfs"))
    assert is_network("/net", table)
    assert is_network(os.fsdecode(b"/\xff\xfe/a"), table)


@pytest.mark.parametrize(
    "line", ["", "garbage", "x - nfs", "1 2 3 - nfs server:/ rw", " - ", "40 22 0:40 / /net rw nfs"]
)
def test_a_line_that_is_none_counts_for_nothing(tmp_path, line):
    assert not is_network("/net/ann", mounts(tmp_path, line))


def test_without_optional_fields(tmp_path):
    assert is_network("/net", mounts(tmp_path, mount("/net", "nfs", optional="")))


def test_where_it_cannot_be_found_out(tmp_path):
    assert not is_network("/net", str(tmp_path / "none"))


def test_a_link_counts_for_where_it_leads(tmp_path):
    (tmp_path / "net").mkdir()
    (tmp_path / "home").symlink_to(tmp_path / "net")
    table = mounts(tmp_path, mount(tmp_path / "net", "nfs"))
    assert is_network(str(tmp_path / "home" / "not there yet"), table)
    assert not is_network(str(tmp_path / "other"), table)


def test_this_machines_own_table_can_be_read(tmp_path):
    assert is_network("/proc") is False
    assert is_network(str(tmp_path)) in (True, False)
