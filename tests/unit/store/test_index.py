import os
import sqlite3
import stat
import threading
from contextlib import closing

import pytest

from drumline.contract.errors import DrumlineError
from drumline.store import index as store
from drumline.store.index import Index, Row


@pytest.fixture
def index(tmp_path):
    return Index(str(tmp_path / "home"))


def every(index, **kwargs):
    return index.names(**{"archived": None, "parent": None, "limit": None, **kwargs})


def add(index, *rows):
    """The index asks for what it lacks; so a job gets into it."""
    by_name = {row.name: row for row in rows}
    index.heal([*every(index), *by_name], by_name.get)


def test_names_are_newest_first(index):
    add(index, *(Row(name, float(created), "e", "") for created, name in enumerate("abc")))
    assert every(index) == ["c", "b", "a"]
    assert every(index, limit=2) == ["c", "b"]
    assert every(index, limit=0) == []


def test_a_job_is_added_once(index):
    add(index, Row("a", 1.0, "e", ""))
    add(index, Row("a", 2.0, "other", ""))
    assert every(index) == ["a"]


def test_archived_and_parent_choose(index):
    add(index, Row("a", 1.0, "e", ""), Row("b", 2.0, "e", "parent"))
    index.set_archived("a", archived=True)
    assert (every(index, archived=False), every(index, archived=True)) == (["b"], ["a"])
    assert every(index, parent="parent") == ["b"]


def test_healing_adds_what_is_there_and_drops_what_is_gone(index):
    add(index, Row("gone", 1.0, "e", ""), Row("kept", 2.0, "e", ""))
    asked = []

    def row_of(name):
        asked.append(name)
        return None if name == "unreadable" else Row(name, 3.0, "e", "", archived=True)

    index.heal(["kept", "new", "unreadable"], row_of)
    assert every(index) == ["new", "kept"]
    assert every(index, archived=True) == ["new"]
    assert sorted(asked) == ["new", "unreadable"]


def test_many_may_write_at_once(index):
    everything = {f"job{number}": Row(f"job{number}", float(number), "e", "") for number in range(80)}

    def heal():
        for _ in range(10):
            index.heal(everything, everything.get)

    threads = [threading.Thread(target=heal) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(every(index)) == 80


def test_others_use_the_index_while_folders_are_read(index, tmp_path, monkeypatch):
    """On a new machine all of them are, which takes long."""
    monkeypatch.setattr(store, "_LOCKED_LIMIT_S", 0.0)
    monkeypatch.setattr(store, "_BATCH", 2)
    other, seen = Index(str(tmp_path / "home")), []

    def row_of(name):
        seen.append(len(every(other)))
        return Row(name, 1.0, "e", "")

    index.heal("abcde", row_of)
    assert seen == [0, 0, 2, 2, 4]
    assert every(index) == list("abcde")


def test_a_job_that_is_archived_after_it_was_read_is_archived(index, tmp_path):
    other = Index(str(tmp_path / "home"))

    def row_of(name):
        other.heal(["a"], lambda _: Row("a", 1.0, "e", "", archived=True))
        other.set_archived("a", archived=True)
        return Row(name, 1.0, "e", "")

    index.heal(["a"], row_of)
    assert every(index, archived=True) == ["a"]


def test_an_index_that_is_in_use_for_long_need_not_be_deleted(index, tmp_path, monkeypatch):
    monkeypatch.setattr(store, "_LOCKED_LIMIT_S", 0.0)
    add(index, Row("a", 1.0, "e", ""))
    with closing(sqlite3.connect(file_of(tmp_path), isolation_level=None)) as database:
        database.execute("BEGIN IMMEDIATE")
        with pytest.raises(DrumlineError, match="database is locked") as error:
            every(index)
    assert error.value.hint == "another command is writing to it; run this one again in a moment"


def test_it_is_for_its_owner_alone(index, tmp_path):
    before = os.umask(0)
    try:
        add(index, Row("a", 1.0, "e", ""))
    finally:
        os.umask(before)
    for path in [tmp_path / "home", *(tmp_path / "home").iterdir()]:
        assert path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO) == 0, path


def test_what_cannot_be_opened_is_our_error(index, tmp_path):
    (tmp_path / "home" / "index.sqlite").mkdir(parents=True)
    with pytest.raises(DrumlineError, match="cannot be opened"):
        every(index)


# A home on a network file system, where SQLite cannot be.


@pytest.fixture
def place(tmp_path, monkeypatch):
    """In the place of /var/tmp; every home is on a network file system."""
    monkeypatch.setattr(store, "is_network", lambda path: True)
    monkeypatch.setattr(store, "_LOCAL", str(tmp_path / "var tmp"))
    (tmp_path / "var tmp").mkdir()
    return tmp_path / "var tmp"


def test_the_index_of_a_home_on_a_network_is_on_this_machine(place, tmp_path):
    add(Index(str(tmp_path / "home")), Row("a", 1.0, "e", ""))
    assert not (tmp_path / "home").exists()
    (ours,) = place.iterdir()
    assert ours.name == f"drumline-index-{os.getuid()}"
    for path in [ours, *ours.rglob("*")]:
        assert path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO) == 0, path
    assert every(Index(str(tmp_path / "home"))) == ["a"]


def test_two_homes_have_an_index_each(place, tmp_path):
    add(Index(str(tmp_path / "one")), Row("a", 1.0, "e", ""))
    add(Index(str(tmp_path / "two")), Row("b", 1.0, "e", ""))
    assert every(Index(str(tmp_path / "one"))) == ["a"]
    assert every(Index(str(tmp_path / "two"))) == ["b"]


def test_a_folder_that_others_may_enter_is_not_used(place, tmp_path):
    (place / f"drumline-index-{os.getuid()}").mkdir(mode=0o755)
    with pytest.raises(DrumlineError, match="is not a folder for you alone"):
        every(Index(str(tmp_path / "home")))


def test_nothing_is_read_or_deleted_in_somebody_elses_folder(place, tmp_path):
    """Whoever made it may have put a link to an index of this user there, or one that hides jobs."""
    add(Index(str(tmp_path / "home")), Row("a", 1.0, "e", "", True))
    ours = place / f"drumline-index-{os.getuid()}"
    [file] = ours.glob("*/index.sqlite")
    ours.chmod(0o777)
    index = Index(str(tmp_path / "home"))
    row = Row("a", 1.0, "e", "")
    assert index.names_without_writing(["a"], lambda _: row, archived=False, parent=None, limit=None) == ["a"]
    assert index.experiments() == []
    index.discard()
    assert file.exists()
    ours.chmod(0o700)
    index.discard()
    assert not file.exists()


@pytest.mark.parametrize("kind", ["file", "link", "link to nothing"])
def test_what_is_no_folder_is_not_used(place, tmp_path, kind):
    """A link would lead into somebody else's folder."""
    there = place / f"drumline-index-{os.getuid()}"
    if kind == "file":
        there.touch()
    else:
        (tmp_path / "theirs").mkdir(mode=0o700)
        there.symlink_to(tmp_path / ("theirs" if kind == "link" else "nothing"))
    with pytest.raises(DrumlineError, match="is not a folder for you alone") as error:
        every(Index(str(tmp_path / "home")))
    assert error.value.hint == "delete it, or ask its owner to"
    assert not (tmp_path / "nothing").exists()


def test_somebody_elses_folder_is_not_used(place, tmp_path, monkeypatch):
    uid = os.getuid()
    (place / f"drumline-index-{uid + 1}").mkdir(mode=0o700)
    monkeypatch.setattr(store.os, "getuid", lambda: uid + 1)
    with pytest.raises(DrumlineError, match="is not a folder for you alone"):
        every(Index(str(tmp_path / "home")))


def test_a_home_in_such_a_place_is_like_any_other(tmp_path, monkeypatch):
    """DRUMLINE_HOME may be below /var/tmp, and a folder that others can list."""
    monkeypatch.setattr(store, "_LOCAL", str(tmp_path))
    tmp_path.chmod(0o755)
    index = Index(str(tmp_path / "home"))
    add(index, Row("a", 1.0, "e", ""))
    assert every(index) == ["a"]


def file_of(tmp_path):
    return tmp_path / "home" / "index.sqlite"


def cut(path):
    """As a disk or a copy that went wrong leaves it: the first page is whole, and others are not."""
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\xa5" * (len(whole) - 4096))


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(b"not a database, and long enough to be told from one" * 100),
        lambda path: path.write_bytes(path.read_bytes()[:5000]),
        lambda path: path.write_bytes(b"\0" * 8192),
        cut,
    ],
    ids=["text", "cut short", "zeros", "pages"],
)
def test_a_damaged_index_is_made_again(index, tmp_path, damage):
    """It can be made again from the jobs, so nobody has to be told to delete it."""
    rows = [Row(f"job{number}", float(number), "e", "") for number in range(300)]
    add(index, *rows)
    damage(file_of(tmp_path))
    for ending in ("-wal", "-shm"):
        file_of(tmp_path).with_name(f"index.sqlite{ending}").unlink(missing_ok=True)
    by_name = {row.name: row for row in rows}
    index.heal(by_name, by_name.get)
    assert len(every(index)) == 300
    index.set_archived("job7", archived=True)
    assert every(index, archived=True) == ["job7"]


def test_a_damaged_index_is_made_again_once_by_many(index, tmp_path):
    rows = {f"job{number}": Row(f"job{number}", float(number), "e", "") for number in range(50)}
    add(index, *rows.values())
    file_of(tmp_path).write_bytes(b"damaged" * 1000)
    failed = []

    def heal():
        try:
            Index(str(tmp_path / "home")).heal(rows, rows.get)
        except DrumlineError as error:
            failed.append(error)

    threads = [threading.Thread(target=heal) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert len(every(index)) == 50


@pytest.fixture
def machines(tmp_path, monkeypatch):
    """One home on a network file system, and what sets the machine that looks at it."""
    monkeypatch.setattr(store, "is_network", lambda path: True)

    def on(name):
        own = tmp_path / name
        own.mkdir(exist_ok=True)
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(own))
        return Index(str(tmp_path / "home"))

    return on


def test_a_job_that_one_machine_archives_is_archived_on_another(machines):
    rows = {name: Row(name, float(number), "e", "") for number, name in enumerate("abc")}
    for machine in ("one", "two"):
        machines(machine).heal(rows, rows.get)

    def archived(machine):
        index = machines(machine)
        index.heal(rows, rows.get)
        return sorted(every(index, archived=True))

    machines("one").set_archived("a", archived=True)
    assert [archived(machine) for machine in ("two", "one")] == [["a"], ["a"]]
    machines("two").set_archived("b", archived=True)
    machines("two").set_archived("a", archived=False)
    assert [archived(machine) for machine in ("one", "two", "three")] == [["b"], ["b"], ["b"]]


def test_a_job_that_another_machine_archives_after_it_was_read_is_archived(machines):
    """A third process of this machine heeds the mark before the row is there."""
    row, index = Row("a", 1.0, "e", ""), machines("one")

    def row_of(name):
        machines("two").heal(["a"], lambda _: row)
        machines("two").set_archived("a", archived=True)
        machines("one").heal(["a"], lambda _: None)
        return row

    index.heal(["a"], row_of)
    assert every(index, archived=True) == ["a"]


def test_a_mark_that_another_machine_is_writing_is_left_to_it(machines, tmp_path):
    rows = {"a": Row("a", 1.0, "e", "")}
    index = machines("one")
    index.heal(rows, rows.get)
    index.set_archived("a", archived=True)
    half = tmp_path / "home" / "archive-marks" / "a.0badcafe.partial"
    half.write_text("")
    index.heal(rows, rows.get)
    assert half.exists()


def test_a_damaged_mark_says_nothing(machines, tmp_path):
    rows = {"a": Row("a", 1.0, "e", "")}
    index = machines("one")
    index.heal(rows, rows.get)
    index.set_archived("a", archived=True)
    (tmp_path / "home" / "archive-marks" / "a").write_bytes(b"\xff\xfe")
    index.heal(rows, rows.get)
    assert every(index, archived=False) == ["a"]


def test_a_mark_goes_with_its_job(machines, tmp_path):
    rows = {"a": Row("a", 1.0, "e", "")}
    index = machines("one")
    index.heal(rows, rows.get)
    index.set_archived("a", archived=True)
    index.heal({}, rows.get)
    assert list((tmp_path / "home" / "archive-marks").iterdir()) == []
    index.heal(rows, rows.get)
    assert every(index, archived=False) == ["a"]


def test_an_index_that_cannot_be_written_to_answers_the_same(index):
    rows = [Row(name, float(created), "e", "p" if name == "c" else "") for created, name in enumerate("abcd")]
    add(index, *rows[:3])
    index.set_archived("a", archived=True)
    by_name, asked = {row.name: row for row in rows}, []

    def row_of(name):
        asked.append(name)
        return by_name[name]

    chosen = [
        {"archived": archived, "parent": parent, "limit": limit}
        for archived in (None, True, False)
        for parent in (None, "p")
        for limit in (None, 0, 1)
    ]
    found = [index.names_without_writing("abcd", row_of, **one) for one in chosen]
    assert set(asked) == {"d"}
    index.heal("abcd", row_of)
    assert found == [index.names(**one) for one in chosen]


def test_an_index_that_is_missing_is_read_from_the_jobs(index, tmp_path):
    row = Row("a", 1.0, "e", "")
    assert index.names_without_writing(["a"], lambda _: row, archived=None, parent=None, limit=None) == ["a"]
    assert not (tmp_path / "home").exists()
