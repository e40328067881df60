import os
import stat
import threading

import pytest

from drumline.contract.errors import DrumlineError
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


def test_it_is_for_its_owner_alone(index, tmp_path):
    before = os.umask(0)
    try:
        add(index, Row("a", 1.0, "e", ""))
    finally:
        os.umask(before)
    for path in [tmp_path / "home", *(tmp_path / "home").iterdir()]:
        assert path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO) == 0, path


def test_a_damaged_file_is_our_error(index, tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "index.sqlite").write_bytes(b"no database" * 100)
    with pytest.raises(DrumlineError, match="cannot be opened"):
        every(index)
