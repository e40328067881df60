"""What the server keeps in memory, and what it returns."""

import asyncio
import gc
import json
import tracemalloc
import weakref

import pytest

from drumline.control.facts.job_table import JobTable
from drumline.control.facts.jobs import _from_text
from drumline.studio import tables

MANY = 2000
MOST_BYTES = 640
"""For each job: ten thousand are then 6 MB."""


def write_facts(number):
    """What the index keeps of a job that has ended."""
    began = 1_700_000_000.5 + number
    return json.dumps(
        {
            "name": f"job_{number:05}",
            "kind": "command",
            "status": "Completed",
            "reason": "all ranks completed",
            "created": began,
            "started": began + 1,
            "ended": began + 2,
            "experiment": "digits",
            "compute": "local",
            "parent": "",
            "tags": {},
            "size": "1x2",
            "archived": False,
            "metric": None,
            "has_metric": False,
            "display_name": "",
            "hang": "",
            "attempt": 0,
            "most_attempts": None,
        }
    )


def test_a_job_in_a_list_takes_few_bytes(drumline_home):
    table = JobTable()
    facts = [write_facts(number) for number in range(MANY)]
    for text in facts[:100]:
        table._put(_from_text(text), 0)  # What is made once is made.
    tracemalloc.start()
    try:
        for number, text in enumerate(facts):
            table._put(_from_text(text), 1_700_000_000_000_000_000 + number)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(table.overviews()) == MANY
    assert taken / MANY < MOST_BYTES


def test_a_job_that_changed_is_the_newest_change(drumline_home):
    table = JobTable()
    jobs = [_from_text(write_facts(number)) for number in range(3)]
    for job in jobs:
        table._put(job, 1)
    before = table.version
    table._put(jobs[0]._replace(archived=True), 2)
    assert [job.name for job in table.changes_since(before).jobs] == ["job_00000"]
    assert [job.name for job in table.changes_since(0).jobs] == ["job_00001", "job_00002", "job_00000"]


class Circle:
    def __init__(self):
        self.own = self
        self.blocks = [[] for _ in range(2 * tables._MUCH_BLOCKS)]


@pytest.fixture
def no_collector():
    """Python's own collector would do it too, at some time."""
    gc.disable()
    yield
    gc.unfreeze()
    gc.enable()


def test_what_answers_left_is_returned(monkeypatch, no_collector):
    monkeypatch.setattr(tables, "_RETURN_S", 0.01)

    async def look():
        gone = asyncio.Event()
        returning = asyncio.create_task(tables.return_memory())
        await asyncio.sleep(0)
        weakref.finalize(Circle(), gone.set)
        assert not gone.is_set()
        await asyncio.wait_for(gone.wait(), 30)
        returning.cancel()

    asyncio.run(look())
