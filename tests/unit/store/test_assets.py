"""Records of assets, with real processes where several write at once."""

import os
import stat
import subprocess
import sys

import pytest

from drumline.contract.errors import NotFoundError, SpecError, UsageError
from drumline.store.asset_versions import Records

PROCESSES = 8

MAKER = """
import sys
from drumline.store.asset_versions import Records

home, version, number = sys.argv[1:]
records = Records(home, "data")
print("ready", flush=True)
sys.stdin.read()
try:
    print(records.create("digits", version or None, {"by": number}))
except FileExistsError:
    print("taken")
"""


@pytest.fixture
def home(tmp_path):
    return tmp_path / "home"


@pytest.fixture
def records(home):
    return Records(str(home), "data")


def at_once(home, version):
    """What each of several processes says that makes a version, all at the same time."""
    argv = [sys.executable, "-c", MAKER, str(home), version]
    makers = [
        subprocess.Popen([*argv, str(number)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for number in range(PROCESSES)
    ]
    for maker in makers:
        assert maker.stdout.readline() == "ready\n"
    for maker in makers:
        maker.stdin.close()
    said = [maker.stdout.read().strip() for maker in makers]
    for maker in makers:
        maker.stdout.close()
        assert maker.wait(timeout=60) == 0
    return said


def test_of_many_at_once_each_gets_a_version_of_its_own(home, records):
    said = at_once(home, "")
    assert sorted(said) == sorted(str(number) for number in range(1, PROCESSES + 1))
    assert {records.read("digits", version)["by"] for version in said} == set(map(str, range(PROCESSES)))
    assert records.versions("digits") == sorted(said, reverse=True)


def test_of_many_at_once_exactly_one_makes_a_version(home, records):
    said = at_once(home, "2024")
    assert sorted(said) == ["2024", *["taken"] * (PROCESSES - 1)]
    assert records.read("digits", "2024")["by"] == str(said.index("2024"))


def test_what_was_written_is_read_again(records):
    odd = {"path": os.fsdecode(b"/data/\xff"), "yes": "on", "lines": "a\nb\n", "tags": {"n": 1, "none": None}}
    version = records.create("digits", "v:1", odd)
    read = records.read("digits", version)
    assert {key: read[key] for key in odd} == odd
    assert read["created_at"].endswith("Z")


def test_a_version_goes_on_from_the_largest_whole_number(records):
    for version in ("7", "10", "2024-01-01", "x"):
        records.create("digits", version, {})
    assert records.create("digits", None, {}) == "11"


def test_latest_is_what_was_created_last(records):
    for version in ("9", "b", "a"):
        records.create("digits", version, {})
    assert records.versions("digits") == ["a", "b", "9"]
    records.archive("digits", "a")
    assert records.find("digits", "latest") == "b"
    records.restore("digits", "a")
    assert records.find("digits", "latest") == "a"
    records.archive("digits")
    assert (records.find("digits", "latest"), records.is_archived("digits", "9")) == ("", True)


def test_a_clock_that_goes_back_changes_no_order(records, home):
    records.create("digits", "1", {})
    file = home / "assets" / "data" / "digits" / "1.yml"
    file.write_text("created_at: '2999-01-01T00:00:00.000000Z'\n")
    records.create("digits", "2", {})
    assert records.find("digits", "latest") == "2"
    assert records.read("digits", "2")["created_at"].startswith("2999")


def test_to_replace_a_record_leaves_its_age(records):
    records.create("digits", "1", {"a": 1})
    records.create("digits", "2", {})
    before = records.read("digits", "1")["created_at"]
    records.replace("digits", "1", {"a": 2})
    assert records.read("digits", "1") == {"a": 2, "created_at": before}
    assert records.find("digits", "latest") == "2"


def test_a_label_is_on_one_version(records):
    records.create("digits", "1", {})
    records.create("digits", "2", {})
    records.set_label("digits", "prod", "1")
    records.set_label("digits", "prod", "2")
    assert records.labels("digits") == {"prod": "2"}
    assert records.find("digits", "prod") == "2"
    records.remove_label("digits", "prod")
    assert records.find("digits", "prod") == ""
    with pytest.raises(UsageError, match="always marks the newest version"):
        records.set_label("digits", "latest", "1")


def test_names_are_those_with_a_version(records):
    assert records.names() == []
    records.create("b", None, {})
    records.create("a", None, {})
    records.remove("b", "1")
    assert records.names() == ["a"]
    with pytest.raises(NotFoundError):
        records.remove("b", "1")
    with pytest.raises(NotFoundError):
        records.read("b", "1")


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../x", "a/b", "-a", ".a", "a b", "a\n", "a\0", "ä", "a" * 256]
)
def test_a_name_that_is_no_files_name_is_refused(records, name):
    for use in (lambda: records.create(name, None, {}), lambda: records.read(name, "1")):
        with pytest.raises(UsageError):
            use()
    assert list(records.names()) == []


@pytest.mark.parametrize(
    "version", ["", ".", "..", "a b", "a/b", "a@b", "a\\b", "a\n", "a\0", "x" * 241, "\ud800", "\x7f"]
)
def test_a_version_that_no_reference_can_say_is_refused(records, version):
    with pytest.raises(UsageError):
        records.create("digits", version, {})


@pytest.mark.parametrize("version", ["...", ".a", "a:b", "%2E", "ä", "1.0+cu118", "-", "1.yml"])
def test_any_other_version_is_kept_as_it_is(records, version):
    assert records.create("digits", version, {"v": version}) == version
    assert records.versions("digits") == [version]
    assert records.read("digits", version)["v"] == version


def test_all_of_it_is_for_its_owner_alone(records, home):
    before = os.umask(0)
    try:
        records.create("digits", None, {})
        records.archive("digits", "1")
        records.set_label("digits", "prod", "1")
        records.replace("digits", "1", {"a": 1})
    finally:
        os.umask(before)
    paths = [home, *home.rglob("*")]
    assert len(paths) == 9
    assert all(stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600) for path in paths)


@pytest.mark.parametrize("text", ["a: [", "- a", "", "!!python/object/apply:os.getcwd []"])
def test_a_damaged_record_is_told_with_its_file(records, home, text):
    records.create("digits", "1", {})
    file = home / "assets" / "data" / "digits" / "1.yml"
    file.write_text(text)
    with pytest.raises(SpecError) as error:
        records.read("digits", "1")
    assert error.value.problems[0].file == str(file)
    assert records.find("digits", "latest") == "1"


def test_after_the_greatest_number_there_is_another(records):
    records.create("digits", "9" * 18, {})
    assert records.create("digits", None, {}) == "1" + "0" * 18
    assert records.create("digits", None, {}) == "1" + "0" * 17 + "1"
    records.create("digits", "9" * 200, {})
    with pytest.raises(UsageError, match="cannot be a version"):
        records.create("digits", None, {})


def test_the_longest_version_and_label_can_be_replaced(records):
    version = "é" * 38
    records.create("digits", version, {"tags": {}})
    records.replace("digits", version, {"tags": {"a": "b"}})
    assert records.read("digits", version)["tags"] == {"a": "b"}
    with pytest.raises(UsageError, match="cannot be a version"):
        records.create("digits", "é" * 39, {})
    records.set_label("digits", "l" * 230, version)
    assert records.find("digits", "l" * 230) == version
    with pytest.raises(UsageError, match="a label of 231 characters"):
        records.set_label("digits", "l" * 231, version)


@pytest.mark.parametrize("name", ["1 (copy).yml", ".yml", ".#1.yml", "a%3a.yml", "x@y.yml"])
def test_a_file_that_is_no_version_is_not_in_the_way(home, records, name):
    records.create("digits", None, {})
    (home / "assets" / "data" / "digits" / name).write_text("")
    assert (records.versions("digits"), records.find("digits", "latest")) == (["1"], "1")
    assert records.create("digits", None, {}) == "2"


def test_a_label_and_a_time_that_were_damaged_stop_nothing(home, records):
    records.create("digits", "1", {})
    folder = home / "assets" / "data" / "digits"
    (folder / "1.yml").write_text("created_at: '9999-12-31T23:59:59.999999Z'\n")
    records.set_label("digits", "prod", "1")
    (folder / "labels" / "prod").write_bytes(b"\xff")
    assert (records.create("digits", None, {}), records.find("digits", "prod")) == ("2", "")


def test_a_file_in_the_place_of_a_name_is_not_a_version_of_it(home, records):
    (home / "assets" / "data").mkdir(parents=True)
    (home / "assets" / "data" / "digits").write_text("")
    with pytest.raises(NotADirectoryError):
        records.create("digits", "1", {})
