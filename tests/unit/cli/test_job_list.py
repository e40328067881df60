"""Lists of many jobs: filters, what the index keeps of jobs that have ended, and how wide the table is."""

import json
import os
import time

import pytest
import yaml

from drumline.cli import screen
from drumline.cli.main import main
from drumline.cli.views import ps as view
from drumline.contract import events as e
from drumline.contract import process_identity
from drumline.contract.folder import RunFolder, private_folder
from drumline.control.facts.jobs import KnownJobs
from drumline.control.jobs import job_folders
from drumline.store.index import Index

HOSTILE = "鼓" * 40 + "\x1b[2J\x1b]0;x\x07"


def make_job(name, *, ended="Completed", reason="", ago_s=0.0, events=(), **spec):
    """A job as its run folder shows it; nothing has run."""
    folder = RunFolder.for_job(name)
    folder.create()
    created = time.time() - ago_s
    folder.write(folder.job, yaml.safe_dump({"experiment_name": "digits", "command": "true", **spec}))
    nodes = [
        {"node": node, "ranks": [{"rank": node * 2 + at, "label": str(node * 2 + at)} for at in (0, 1)]}
        for node in (0, 1)
    ]
    folder.write(folder.plan, json.dumps({"nodes": nodes}))
    folder.begin(e.JobSubmitted(created, "me"))
    folder.append(e.RankStarted(created + 1, 0, 0, 4_000_000))
    for event in events:
        folder.append(event)
    if ended:
        folder.append(e.JobEnded(created + 3, ended, 0, reason))
    return folder


@pytest.fixture
def jobs(drumline_home):
    private_folder(str(drumline_home / "jobs"))
    for number in range(60):
        make_job(f"job_{number:02}", ago_s=3600.0 * (60 - number))
    make_job(
        "bad",
        ended="Failed",
        reason=HOSTILE,
        tags={"team": "vision"},
        compute="azureml:lab",
        experiment_name="lr-1",
    )


def run(capsys, *argv):
    code = main(list(argv))
    said = capsys.readouterr()
    assert code == 0, said.err
    return said


def names(capsys, *options):
    return run(capsys, "job", "list", *options, "--query", "[].name", "-o", "tsv").out.split()


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ((), 61),
        (("-r", "3"), 3),
        (("-r", "0"), 0),
        (("-r", "100"), 61),
        (("--status", "failed"), 1),
        (("--status", "Failed,Completed"), 61),
        (("--status", "Running"), 0),
        (("--experiment", "lr-*"), 1),
        (("--experiment", "digits"), 60),
        (("--compute", "lab"), 1),
        (("--compute", "local"), 60),
        (("--since", "150m"), 3),
        (("--since", "2000-01-01"), 61),
        (("--tag", "team"), 1),
        (("--tag", "team=vision"), 1),
        (("--tag", "team=audio"), 0),
    ],
)
def test_a_query_is_of_all_jobs_that_match(jobs, capsys, options, count):
    assert len(names(capsys, *options)) == count


def test_the_facts_of_ended_jobs_are_read_once(jobs, capsys, monkeypatch):
    first = json.loads(run(capsys, "job", "list", "--all").out)
    table = run(capsys, "job", "list", "--all", "-o", "table").out

    def fail(*_args, **_kwargs):
        raise AssertionError("the run folder was read again")

    with monkeypatch.context() as patch:
        patch.setattr("drumline.control.facts.jobs.recover", fail)
        assert json.loads(run(capsys, "job", "list", "--all").out) == first
        assert run(capsys, "job", "list", "--all", "-o", "table").out.splitlines()[0] == table.splitlines()[0]
    # Whatever is written about a job afterwards is seen.
    job_folders.edit("bad", {"tags": {"team": "audio"}, "display_name": "other"})
    assert names(capsys, "--tag", "team=audio") == ["bad"]
    assert json.loads(run(capsys, "job", "list", "-r", "1").out)[0]["display_name"] == "other"


def test_facts_that_an_older_version_kept_are_completed(jobs, drumline_home):
    job_folders.edit("bad", {"display_name": "The bad one"})
    known = KnownJobs()
    known.load(["bad"])
    assert known.overview("bad").display_name == "The bad one"
    known.keep()
    index = Index(str(drumline_home))
    kept = index.read_kept(["bad"])["bad"]
    facts = json.loads(kept.facts)
    del facts["display_name"]
    index.keep_facts({"bad": kept._replace(facts=json.dumps(facts))})
    known = KnownJobs()
    known.load(["bad"])
    assert known.overview("bad").display_name == "The bad one"


def test_a_home_that_was_moved_shows_its_new_paths(jobs, drumline_home, capsys, monkeypatch):
    assert json.loads(run(capsys, "job", "list", "-r", "1").out)[0]["run_folder"] == str(
        drumline_home / "jobs" / "bad"
    )
    moved = drumline_home.with_name("moved")
    drumline_home.rename(moved)
    monkeypatch.setenv("DRUMLINE_HOME", str(moved))
    assert json.loads(run(capsys, "job", "list", "-r", "1").out)[0]["run_folder"] == str(
        moved / "jobs" / "bad"
    )
    moved.rename(drumline_home)


def test_kept_facts_that_were_damaged_are_read_again(jobs, capsys, drumline_home):
    import sqlite3

    before = run(capsys, "job", "list", "-r", "1").out
    with sqlite3.connect(drumline_home / "index.sqlite") as database:
        database.execute("UPDATE kept SET facts = '{\"x\": 1}', described = '[1]'")
    database.close()
    assert run(capsys, "job", "list", "-r", "1").out == before
    assert names(capsys, "--status", "failed") == ["bad"]


def test_a_removed_job_is_forgotten(jobs, capsys, drumline_home):
    import shutil

    run(capsys, "job", "list", "--all")
    shutil.rmtree(drumline_home / "jobs" / "bad")
    assert "bad" not in names(capsys)
    make_job("bad", ended="Canceled")
    assert names(capsys, "--status", "canceled") == ["bad"]


def test_the_list_says_what_it_leaves_out(jobs, capsys):
    said = run(capsys, "job", "list")
    assert len(json.loads(said.out)) == 50
    assert said.err == "showing 50 of 61 jobs; --all-results shows all\n"
    said = run(capsys, "job", "list", "-o", "table")
    assert (len(said.out.splitlines()), said.err) == (51, "50 of 61 jobs; --all shows the rest\n")
    assert (
        run(capsys, "job", "list", "--status", "queued").err
        == "none of 61 jobs matches; drumline job list shows them\n"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--status", "compelted"), "did you mean 'Completed'?"),
        (("--since", "soon"), "is not a time"),
        (("--since", "9e99d"), "is not a time"),
        (("--archived-only", "--include-archived"), "exclude each other"),
    ],
)
def test_a_filter_that_means_nothing_is_refused(capsys, words, said):
    assert main(["job", "list", *words]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("width", [60, 80, 100])
def test_the_table_fits(jobs, width):
    known = KnownJobs()
    found = list(known.overviews(["bad", "job_01"], with_metric=True))
    wide = {"name": HOSTILE, "reason": HOSTILE, "compute": HOSTILE, "metric": (HOSTILE, 1e-9)}
    found.append(found[0]._replace(**wide))
    lines = view.format_jobs(found, room=width).splitlines()
    assert max(map(screen.measure, lines)) <= width
    assert all(line.isprintable() for line in lines)
    heads = lines[0].split()
    assert heads == [head for head in view._HEADS if head in heads]
    row = dict(zip(view._HEADS, ["job_01", "2d", "2.0s", "2x2", "local", "-", "Completed"], strict=True))
    assert lines[2].split() == [row[head] for head in heads]


def test_ps_lists_what_runs_with_the_jobs_below_it(jobs, capsys, drumline_home):
    """The supervisor of these is this process."""
    from drumline.contract import process_identity

    def running(name, **spec):
        folder = make_job(name, ended="", events=[e.JobRunning(time.time())], **spec)
        folder.write(folder.supervisor, json.dumps(process_identity.identify_process(os.getpid())))

    running("p")
    running("p_1", parent_job_name="p")
    running("p_2", parent_job_name="p")
    running("q")
    said = run(capsys, "ps")
    assert [job["name"] for job in json.loads(said.out)] == ["q", "p", "p_1", "p_2"]
    lines = run(capsys, "ps", "-o", "table").out.splitlines()
    assert [line.split()[0] for line in lines] == ["NAME", "q", "p", "p_1", "p_2"]
    assert lines[3].startswith("  p_1")
    for name in ("p", "p_1", "p_2", "q"):
        RunFolder.for_job(name).append(e.JobEnded(time.time(), "Completed", 0, ""))
    assert json.loads(run(capsys, "ps").out) == []
    assert "nothing runs or waits" in run(capsys, "ps", "-o", "table").err


def test_lists_say_that_a_job_hangs(jobs, capsys):
    """The supervisor of these is this process."""
    from drumline.contract import process_identity

    folder = make_job(
        "h", ended="", events=[e.JobRunning(time.time()), e.JobHung(time.time(), "ranks 0-3 wait")]
    )
    folder.write(folder.supervisor, json.dumps(process_identity.identify_process(os.getpid())))
    for verb in (("ps",), ("job", "list", "-r", "1")):
        line = run(capsys, *verb, "-o", "table").out.splitlines()[1]
        assert line.split()[0] == "h"
        assert line.endswith("Running: hangs: ranks 0-3 wait")
    folder.append(e.JobWentOn(time.time()))
    assert run(capsys, "ps", "-o", "table").out.splitlines()[1].endswith(" Running")
    folder.append(e.JobHung(time.time(), "ranks 0-3 wait"))
    folder.append(e.JobEnded(time.time(), "Canceled", 1, "canceled by me"))
    assert (
        run(capsys, "job", "list", "-r", "1", "-o", "table").out.splitlines()[1].endswith(": canceled by me")
    )


@pytest.mark.parametrize(
    ("width", "heads"),
    [
        (100, "NAME AGE TIME SIZE COMPUTE METRIC STATUS"),
        (80, "NAME AGE TIME SIZE COMPUTE METRIC STATUS"),
        (72, "NAME AGE TIME SIZE METRIC STATUS"),
        (58, "NAME AGE TIME SIZE STATUS"),
        (52, "NAME AGE TIME STATUS"),
    ],
)
def test_a_narrow_terminal_has_fewer_columns_and_whole_figures(jobs, width, heads):
    known = KnownJobs()
    (job,) = known.overviews(["job_01"], with_metric=True)
    name = "bright_chord_05l027v8ya"
    one = job._replace(name=name, metric=("validation/accuracy", 0.97312), status="Failed", reason="x" * 99)
    lines = view.format_jobs([one], room=width).splitlines()
    assert lines[0].split() == heads.split()
    assert lines[1].startswith(name)
    assert ("0.973" in lines[1]) == ("METRIC" in heads)
    assert "2.0s" in lines[1]
    assert max(map(screen.measure, lines)) <= width


@pytest.mark.parametrize(("kind", "word"), [("pipeline", "step"), ("sweep", "trial")])
def test_the_row_of_a_pipeline_says_that_a_step_hangs(drumline_home, capsys, kind, word):
    private_folder(str(drumline_home / "jobs"))
    where = "no rank goes on since 12:00"
    make_job("p-a", ended="", parent_job_name="p", events=[e.JobHung(time.time(), where)])
    folder = make_job("p", ended="")
    events = [e.JobSubmitted(time.time(), "me", "local", kind), e.JobRunning(time.time())]
    os.unlink(folder.events)
    folder.begin(events[0])
    for event in (*events[1:], e.StepStarted(time.time(), "a", "p-a")):
        folder.append(event)
    me = json.dumps(process_identity.identify_process(os.getpid()))
    folder.write(folder.supervisor, me)  # Else the look at it starts a driver.
    known = KnownJobs()
    (row,) = known.overviews(["p"])
    assert (row.hang, row.reason) == (f"{word} a hangs: {where}",) * 2
    inner = make_job("outer", ended="")
    inner.write(inner.supervisor, me)
    os.unlink(inner.events)
    inner.begin(e.JobSubmitted(time.time(), "me", "local", "pipeline"))
    inner.append(e.StepStarted(time.time(), "b", "p"))
    assert known.overview("outer").hang == f"step b: {word} a hangs: {where}"
    folder.append(e.StepEnded(time.time(), "a", "Failed", "it hung"))
    assert known.overview("p").hang == ""
    inner.append(e.StepStarted(time.time(), "c", "outer"))
    assert known.overview("outer").hang == "", "a circle ends"
