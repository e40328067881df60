"""A job can write anything to its own run folder: the studio answers all the same, and lists the other jobs."""

import json
import shutil
from pathlib import Path

from made_jobs import MadeJob
from studio_server import API, run_studio
from waiting import wait_until

from drumline.contract import events as e

PATHS = (
    "/jobs?archived=all&spark=1",
    *(
        f"/jobs/bad{path}"
        for path in (
            *("", "/events", "/spec", "/plan", "/ranks", "/environment", "/logs", "/logs/raw?rank=0"),
            *(
                "/logs/search?q=line",
                "/timeline",
                "/timeline/trace",
                "/system",
                "/metrics",
                "/code",
                "/files",
            ),
            *("/graph", "/trials"),
        )
    ),
    "/series?jobs=bad",
    "/diff?a=bad&b=good",
    "/queue",
)
VALUES = ("x", None, 7, [], {"a": [1]}, -1, float("nan"), 1e300, 10**30, True, "\ud800")


def list_damages(job):
    """Yield files with a text that no version writes: each field with some other values, in turn."""
    plan = json.loads(Path(job.folder.plan).read_text())
    events = [json.loads(line) for line in Path(job.folder.events).read_text().splitlines()]
    yield "events.jsonl", json.dumps(events[0]) + "\n" + "[" * 100_000 + "\n"
    yield "plan.json", "[" * 200_000
    yield "plan.json", "[]"
    for text in (
        "[" * 1_000_000,
        "[]",
        "a: 2026-99-99",
        '{"tags": 7, "display_name": "\\ud800", "outputs": 7}',
    ):
        yield "job.yml", text
    for turn, field in enumerate(plan):
        yield "plan.json", json.dumps({**plan, field: VALUES[turn % len(VALUES)]})
    for value in (None, 7, ["x"]):
        yield "plan.json", json.dumps({**plan, "job": value})
    turn = 0
    for index, event in enumerate(events):
        for field in event.keys() - {"type"}:
            turn += 1
            changed = [*events]
            changed[index] = {**event, field: VALUES[turn % len(VALUES)]}
            yield "events.jsonl", "".join(json.dumps(one) + "\n" for one in changed)


def test_no_file_of_a_job_stops_the_answers_about_others(drumline_home):
    MadeJob("good").start()
    bad = MadeJob("bad")
    bad.start()
    bad.add(
        e.RankExited(1002.0, 0, 0, 1, None),
        e.JobEnded(1003.0, "Failed", 1, "rank 0 failed", 0, 0, {"rank": 0}),
    )
    bad.log(0, "line\n")
    kept = Path(bad.folder.path).parent.parent / "kept"
    shutil.copytree(bad.folder.path, kept, symlinks=True)
    with run_studio() as studio:
        for turn, (name, text) in enumerate(list_damages(bad)):
            Path(bad.folder.path, name).write_text(text)
            # All questions about the first few, then some about each.
            paths = PATHS if turn < 8 else (PATHS[0], *PATHS[1 + turn % 5 :: 5])
            for path in paths:
                answer = studio.ask(API + path)
                assert answer.status != 500, (path, name, text[:300], answer.data)
            for one in ("events.jsonl", "plan.json", "job.yml"):
                Path(bad.folder.path, one).unlink(missing_ok=True)
                if (kept / one).exists():
                    shutil.copy(kept / one, bad.folder.path)
        wait_until(
            lambda: {row["name"] for row in studio.get("/jobs?archived=all")["jobs"]} == {"good", "bad"}, 20.0
        )
