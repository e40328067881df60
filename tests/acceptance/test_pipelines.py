"""Pipelines by the command line: what runs when, with what, and what becomes of the rest."""

import contextlib
import fcntl
import json
import os
import shutil
import signal
from pathlib import Path

import pytest
from cli_jobs import background, job_names, two_by_two, wait_for_status
from pipelines import (
    counts,
    driver_of,
    guard_of,
    log_of,
    reused,
    runs,
    step,
    steps_of,
    wait_for_end,
    wait_for_step,
    waits_for,
    write_pipeline,
)
from waiting import remove_folder, wait_until

from drumline import load_job
from drumline.contract import events as e
from drumline.contract.folder import RunFolder
from drumline.control.driver import children, process, reuse
from drumline.control.driver.pipeline import PipelineDriver
from drumline.control.facts import description
from drumline.control.jobs import recovery
from drumline.control.jobs.ending import cancel
from drumline.control.submission.submit import submit
from drumline.control.upkeep import pruning
from drumline.engines.local import resources


@pytest.fixture
def run(tmp_path):
    """Submit a pipeline and wait for its end: as ``drumline job show`` has it."""

    def to_end(steps, name="p", **fields):
        submit(load_job(write_pipeline(tmp_path, steps, name, **fields)))
        return wait_for_end(name)

    return to_end


@pytest.fixture
def begin(tmp_path):
    def and_return(steps, name="p", **fields):
        submit(load_job(write_pipeline(tmp_path, steps, name, **fields)))

    return and_return


def test_steps_of_two_nodes_feed_each_other(cli, tmp_path):
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "a").write_text("data")
    (tmp_path / "train.yml").write_text(
        json.dumps(
            {
                "inputs": {
                    "data": {"type": "uri_folder"},
                    "n": {"type": "integer"},
                    "note": {"type": "string", "optional": True},
                },
                "outputs": {"model": {"type": "uri_folder"}},
                "command": "cat ${{inputs.data}}/a; echo $RANK n=${{inputs.n}} $[[note=${{inputs.note}}]] $LR; "
                "echo $RANK > ${{outputs.model}}/$RANK",
                "distribution": {"type": "pytorch", "process_count_per_instance": 1},
            }
        )
    )
    prepare = step(
        "test $RANK = 0 && cp -r ${{inputs.raw}}/. ${{outputs.o}}; echo $AZUREML_ROOT_RUN_ID/$AZUREML_RUN_ID",
        inputs={"raw": "${{parent.inputs.raw}}"},
        **two_by_two(),
    )
    train = {
        "component": "./train.yml",
        "inputs": {"data": "${{parent.jobs.prepare.outputs.o}}", "n": "${{parent.inputs.n}}"},
        "outputs": {"model": "${{parent.outputs.made}}"},
        "environment_variables": {"LR": "lr-${{parent.inputs.lr}}"},
        **two_by_two(),
    }
    file = write_pipeline(
        tmp_path,
        {"train": train, "prepare": prepare},
        inputs={"raw": {"type": "uri_folder", "path": "raw"}, "n": 3, "lr": 0.1},
        outputs={"made": {"type": "uri_folder", "name": "made"}},
        experiment_name="exp",
    )
    done = cli("job", "create", "-f", file, "--stream")
    assert done.rc == 0, done.out + done.err
    said = done.out.splitlines()
    assert said[0] == "RunId: p"
    assert {f"[prepare] [{rank}|node-{rank // 2}] p/p-prepare" for rank in range(4)} <= set(said)
    assert {f"[train] [{rank}|node-{rank // 2}] data{rank} n=3 lr-0.1" for rank in range(4)} <= {
        line.replace("  ", " ") for line in said
    }
    assert said.index("step prepare: job p-prepare") < said.index("step train: job p-train")
    assert said[-1].startswith("job p completed after")
    assert said[-1].endswith(": 2 steps completed")

    shown = json.loads(cli("job", "show", "-n", "p").out)
    assert (shown["type"], shown["status"], shown["exit_code"]) == ("pipeline", "Completed", 0)
    assert shown["registered"] == {"made": "azureml:made:1"}
    assert [(one["step"], one["job"], one["needs"]) for one in shown["steps"]] == [
        ("prepare", "p-prepare", []),
        ("train", "p-train", ["prepare"]),
    ]
    assert description.show_job("p-train")["experiment_name"] == "exp"
    assert cli("job", "list", "--query", "[].name", "-o", "tsv").out.split() == ["p"]
    children = cli("job", "list", "-p", "p", "--query", "[].name", "-o", "tsv").out.split()
    assert sorted(children) == ["p-prepare", "p-train"]
    assert cli("job", "download", "-n", "p", "--output-name", "made", "-p", tmp_path / "got").rc == 0
    assert sorted(os.listdir(tmp_path / "got" / "named-outputs" / "made")) == ["0", "1", "2", "3"]
    assert cli("job", "archive", "-n", "p").rc == 0
    assert cli("job", "list", "--query", "[].name", "-o", "tsv").out == ""
    assert (Path(shown["run_folder"]) / "graph.json").stat().st_mode & 0o777 == 0o600


def test_a_step_writes_the_file_that_the_pipeline_says_its_output_is(run, drumline_home):
    place = "azureml://datastores/workspaceblobstore/paths/reports/${{output_name}}.txt"
    write = {
        "command": "echo whole > ${{outputs.made}}",
        "outputs": {"made": "${{parent.outputs.report}}"},
    }
    read = {
        "command": "cat ${{inputs.text}}",
        "inputs": {"text": "${{parent.jobs.write.outputs.made}}"},
    }
    outputs = {"report": {"type": "uri_file", "path": place, "mode": "rw_mount"}}
    shown = run({"write": write, "read": read}, outputs=outputs)
    assert shown["reason"] == "2 steps completed"
    assert (drumline_home / "datastores/workspaceblobstore/reports/made.txt").read_text() == "whole\n"
    assert log_of("p-read") == "whole\n"


def test_a_step_runs_on_the_compute_that_the_pipeline_is_given(run, cli, tmp_path):
    (tmp_path / "here.yml").write_text("name: here\ntype: local\n")
    assert cli("compute", "attach", "-f", tmp_path / "here.yml").rc == 0
    bound = {"command": "true", "compute": "${{parent.inputs.where}}"}
    inner = {"type": "pipeline", "inputs": {"at": "${{parent.inputs.where}}"}}
    inner["jobs"] = {"b": {"command": "true # b", "compute": "${{parent.inputs.at}}"}}
    shown = run({"a": bound, "inner": inner}, inputs={"where": "azureml:here"})
    assert shown["reason"] == "2 steps completed"
    folders = [RunFolder.for_job(name) for name in ("p-a", "p-inner-b")]
    assert [folder.read_json(folder.plan)["compute"]["name"] for folder in folders] == ["here", "here"]


def test_an_output_that_is_a_value_is_given_as_one(run):
    outputs = {"text": {"type": "string"}, "count": {"type": "integer"}, "odd": {"type": "integer"}}
    command = "printf 'a b' > ${{outputs.text}}; echo 7 > ${{outputs.count}}; echo no > ${{outputs.odd}}"
    write = {"component": {"command": command, "outputs": outputs}}
    declared = {"words": {"type": "string"}, "n": {"type": "number"}, "file": {"type": "uri_file"}}
    read = {
        "component": {
            "command": "echo '${{inputs.words}}' ${{inputs.n}}; cat ${{inputs.file}}",
            "inputs": declared,
        },
        "inputs": {
            "words": "${{parent.jobs.write.outputs.text}}",
            "n": "${{parent.jobs.write.outputs.count}}",
            "file": {"type": "uri_file", "path": "${{parent.jobs.write.outputs.count}}"},
        },
    }
    run({"write": write, "read": read})
    assert log_of("p-read") == "a b 7\n7\n"
    wrong = {"component": {"command": "true", "inputs": {"n": {"type": "integer"}}}}
    wrong["inputs"] = {"n": "${{parent.jobs.write.outputs.odd}}"}
    shown = run({"write": write, "wrong": wrong}, "q")
    assert "holds 'no', which is no integer" in shown["reason"]


def test_what_a_step_kept_is_its_output_artifacts(run):
    write = {"command": "mkdir -p outputs; echo said; echo kept > outputs/it.txt"}
    read = {
        "command": "cat ${{inputs.all}}/outputs/it.txt ${{inputs.all}}/user_logs/std_log.txt",
        "inputs": {"all": "${{parent.jobs.write.outputs.artifacts}}"},
    }
    own = {"command": "echo mine > ${{outputs.artifacts}}/it.txt", "outputs": {"artifacts": None}}
    of_own = {
        "command": "cat ${{inputs.all}}/it.txt",
        "inputs": {"all": "${{parent.jobs.own.outputs.artifacts}}"},
    }
    shown = run({"write": write, "read": read, "own": own, "of_own": of_own})
    assert shown["reason"] == "4 steps completed"
    assert log_of("p-read") == "kept\nsaid\n"
    assert log_of("p-of_own") == "mine\n"


def test_steps_that_do_not_need_each_other_run_at_the_same_time(run, tmp_path):
    meet = "touch '{0}/{1}'; " + waits_for("{0}/{2}")
    shown = run({"a": step(meet.format(tmp_path, "a", "b")), "b": step(meet.format(tmp_path, "b", "a"))})
    assert shown["reason"] == "2 steps completed"


def test_many_steps_are_under_way_only_so_many_at_once(run, drumline_home):
    shown = run({f"s{number}": {"command": f"echo {number}"} for number in range(40)})
    assert shown["reason"] == "40 steps completed"
    under_way, most = 0, 0
    for event in RunFolder.for_job("p").read_events():
        under_way += isinstance(event, e.StepStarted) - isinstance(event, e.StepEnded)
        most = max(most, under_way)
    assert 1 < most <= children.MOST_AT_ONCE
    assert len(job_names(drumline_home)) == 41


def test_a_sweep_is_a_step(run, tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "try.py").write_text(
        "import glob, os, sys, urllib.parse\n"
        "root = urllib.parse.unquote(os.environ['MLFLOW_TRACKING_URI'].removeprefix('file://'))\n"
        "(folder,) = glob.glob(f\"{glob.escape(root)}/*/{os.environ['MLFLOW_RUN_ID']}/metrics\")\n"
        "open(f'{folder}/loss', 'w').write(f'1 {sys.argv[1]} 0\\n')\n"
        "open(sys.argv[3] + '/best', 'w').write(sys.argv[1] + open(sys.argv[2] + '/x').read())\n"
    )
    tune = {
        "type": "sweep",
        "trial": {
            "command": "python try.py ${{search_space.lr}} ${{inputs.d}} ${{outputs.m}}",
            "code": "src",
        },
        "inputs": {"d": "${{parent.jobs.make.outputs.o}}"},
        "outputs": {"m": "${{parent.outputs.made}}"},
        "search_space": {"lr": {"type": "choice", "values": [0.3, 0.1]}},
        "sampling_algorithm": "grid",
        "objective": {"goal": "minimize", "primary_metric": "loss"},
        "limits": {"max_total_trials": 2},
    }
    read = {"command": "cat ${{inputs.m}}/best", "inputs": {"m": "${{parent.jobs.tune.outputs.m}}"}}
    make = step("rm '%s/src/try.py'; echo x > ${{outputs.o}}/x" % tmp_path)  # noqa: UP031
    shown = run({"make": make, "tune": tune, "read": read}, outputs={"made": None})
    assert shown["status"] == "Completed", shown["reason"]
    assert log_of("p-read") == "0.1x\n"
    assert steps_of("p", "job")["tune"] == "p-tune"
    assert description.show_job("p-tune")["best_trial"]["metric"] == 0.1


# failures


def test_a_failure_ends_the_pipeline(cli, tmp_path):
    steps = {
        "bad": step(f"{waits_for(tmp_path / 'go')}; echo no such luck >&2; exit 3"),
        "long": step(f"touch '{tmp_path}/go'; sleep 60"),
        "after": step("true", "bad"),
        "last": step("true", "after"),
        "other": step("true", "long"),
    }
    done = cli("job", "create", "-f", write_pipeline(tmp_path, steps), "--stream")
    assert done.rc == 1
    shown = description.show_job("p")
    assert (shown["status"], shown["exit_code"]) == ("Failed", 1)
    assert shown["reason"].startswith("step bad failed (job p-bad): rank 0 on node 0 failed")
    assert "exit code 3" in shown["reason"]
    assert steps_of("p", "status", "reason") == {
        "bad": ("Failed", description.show_job("p-bad")["reason"]),
        "long": ("Canceled", "canceled by its pipeline, because step bad failed"),
        "after": ("Skipped", "step bad, which it needs, failed"),
        "last": ("Skipped", "step after, which it needs, was skipped"),
        "other": ("Skipped", "step long, which it needs, was canceled"),
    }
    assert "step after skipped: step bad, which it needs, failed" in done.out
    assert job_names(Path(shown["run_folder"]).parents[1]) == ["p", "p-bad", "p-long"]


def test_a_pipeline_may_go_on_after_a_failure(run):
    steps = {
        "bad": step("exit 3"),
        "after": step("true", "bad"),
        "good": step("true"),
        "next": step("true", "good"),
        "worse": step("exit 4"),
    }
    shown = run(steps, settings={"continue_on_step_failure": True})
    assert steps_of("p") == {
        "bad": "Failed",
        "good": "Completed",
        "worse": "Failed",
        "after": "Skipped",
        "next": "Completed",
    }
    assert shown["status"] == "Failed"
    assert shown["reason"].startswith("step ")
    assert shown["reason"].endswith("; 1 other step failed too")


def test_a_step_that_cannot_be_submitted_fails(run, tmp_path):
    (tmp_path / "data").mkdir()
    steps = {
        "a": step(f"rm -r '{tmp_path}/data'"),
        "b": step("ls ${{inputs.d}}", "a", inputs={"d": {"path": str(tmp_path / "data")}}),
    }
    shown = run(steps)
    assert shown["reason"] == f"step b failed (job p-b): inputs.d: there is no {tmp_path}/data"


def test_a_step_whose_job_is_removed_fails(begin, tmp_path, drumline_home):
    begin({"a": step(f"{waits_for(tmp_path / 'go')}")})
    wait_for_step("a")
    supervisor = driver_of("p-a")
    remove_folder(drumline_home / "jobs" / "p-a")
    (tmp_path / "go").touch()
    wait_until(lambda: not Path(f"/proc/{supervisor}").exists(), 20.0)
    assert wait_for_end()["reason"] == "step a failed (job p-a): its run folder was removed"


# cancel


def test_a_canceled_pipeline_ends_its_steps(cli, begin):
    begin(
        {
            "a": step("sleep 60"),
            "b": step("true", "a"),
            "c": {"type": "pipeline", "jobs": {"d": step("sleep 60")}},
        }
    )
    wait_for_step("a")
    wait_for_step("d", "p-c")
    done = cli("job", "cancel", "-n", "p")
    assert (done.rc, "is Canceled: canceled by" in done.err) == (0, True)
    assert steps_of("p") == {"a": "Canceled", "b": "Skipped", "c": "Canceled"}
    assert steps_of("p-c", "status", "job") == {"d": ("Canceled", "p-c-d")}
    assert description.show_job("p")["exit_code"] == 130


def test_a_step_in_line_says_what_it_waits_for(tmp_path):
    two = {"distribution": {"type": "pytorch", "process_count_per_instance": len(resources.cores())}}
    go = tmp_path / "go"
    steps = {name: step(f"{waits_for(go)}; echo {name}", **two) for name in ("a", "b")}
    with background(
        "job", "create", "-f", write_pipeline(tmp_path, steps), "--stream", cwd=tmp_path
    ) as streaming:
        streaming.wait_for_output(" is in line: waiting for ")
        shown = description.show_job("p")["steps"]
        assert [one["status"] for one in shown].count("Queued") == 1
        assert [one["reason"].startswith("waiting for ") for one in shown].count(True) == 1
        go.touch()
        assert streaming.end() == 0


def test_streaming_may_be_left_and_taken_up_again(cli, tmp_path):
    steps = {"a": step(f"echo here; {waits_for(tmp_path / 'go')}"), "b": step("echo there", "a")}
    file = write_pipeline(tmp_path, steps)
    with background("job", "create", "-f", file, "--stream", cwd=tmp_path) as streaming:
        streaming.wait_for_output("[a] here")
        streaming.interrupt()
        assert streaming.end() == 130
        assert "job p is still running" in streaming.err
    with background("job", "stream", "-n", "p", cwd=tmp_path) as streaming:
        streaming.wait_for_output("[a] here")
        (tmp_path / "go").touch()
        assert streaming.end() == 0
        assert "[b] there\nstep b completed" in streaming.out


# the death of the driver


def test_a_driver_that_is_killed_is_followed_by_another(begin, tmp_path):
    begin(
        {
            "a": step(counts(tmp_path / "a", waits_for(tmp_path / "go"))),
            "b": step(counts(tmp_path / "b"), "a"),
        }
    )
    wait_for_step("a")
    first = driver_of("p")
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: driver_of("p") != first, 20.0)
    (tmp_path / "go").touch()
    assert wait_for_end()["status"] == "Completed"
    assert (runs(tmp_path / "a"), runs(tmp_path / "b")) == (1, 1)


def test_whoever_looks_starts_a_driver_where_all_of_it_was_killed(cli, begin, tmp_path):
    ends = {
        "a": step(counts(tmp_path / "a", waits_for(tmp_path / "go"))),
        "b": step(counts(tmp_path / "b"), "a"),
    }
    begin(ends)
    job = wait_for_step("a")
    driver = driver_of("p")
    os.kill(guard_of(driver), signal.SIGKILL)
    os.kill(driver, signal.SIGKILL)
    (tmp_path / "go").touch()
    # The step is not the driver's child: it ends whether it is looked at or not.
    wait_for_status(job, "Completed")
    assert runs(tmp_path / "b") == 0
    done = cli("job", "stream", "-n", "p")
    assert (done.rc, done.out.count("step b completed")) == (0, 1)
    assert (runs(tmp_path / "a"), runs(tmp_path / "b")) == (1, 1)


def test_whoever_starts_it_again_need_not_have_the_same_path(begin, tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "of-mine").write_text("#!/bin/sh\necho found")
    (tmp_path / "bin" / "of-mine").chmod(0o700)
    with monkeypatch.context() as patched:
        patched.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
        begin({"a": step(waits_for(tmp_path / "go")), "b": step("of-mine", "a")})
    wait_for_step("a")
    driver = driver_of("p")
    os.kill(guard_of(driver), signal.SIGKILL)
    os.kill(driver, signal.SIGKILL)
    (tmp_path / "go").touch()
    assert wait_for_end()["status"] == "Completed"
    assert log_of("p-b") == "found\n"


def test_a_canceled_pipeline_whose_driver_is_killed_is_canceled(begin):
    begin({"a": step("sleep 60")})
    wait_for_step("a")
    driver = driver_of("p")
    os.kill(driver, signal.SIGSTOP)
    cancel("p")
    os.kill(driver, signal.SIGKILL)
    assert wait_for_end()["status"] == "Canceled"


def test_a_driver_that_gets_nowhere_gives_up(begin, drumline_home):
    begin({"a": step("sleep 60"), "b": step("true", "a")})
    wait_for_step("a")
    (drumline_home / "jobs" / "p" / "graph.json").write_text("{")
    os.kill(driver_of("p"), signal.SIGKILL)
    assert "graph.json cannot be read" in wait_for_end()["reason"]
    assert wait_for_end("p-a")["reason"] == "canceled by job p, which failed"


# what is reused


@pytest.fixture
def chain(tmp_path, run):
    """
    Run the pipeline make -> use, and by: which steps of it were reused. ``changed``: of a step the fields that are
    other than before.
    """
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "code").write_text("1")
    (tmp_path / "data").write_text("1")
    data = {"type": "uri_file", "path": str(tmp_path / "data")}
    steps = {
        "make": step("cat code ${{inputs.d}} > ${{outputs.o}}/made", code="src", inputs={"d": data}),
        "use": step("cat ${{inputs.make}}/made; echo $A", "make"),
        "by": step("echo ${{inputs.n}}", inputs={"n": "${{parent.inputs.n}}"}),
    }
    numbers = iter(range(100))

    def once(n=1, settings=None, **changed):
        for name, fields in changed.items():
            steps[name] = {**steps[name], **fields}
        name = f"p{next(numbers)}"
        shown = run(steps, name, inputs={"n": n}, settings=settings or {})
        assert shown["status"] == "Completed", shown["reason"]
        return reused(name)

    return once


ALL = {"make", "use", "by"}


def test_a_step_is_reused_while_nothing_of_it_has_changed(chain, tmp_path, drumline_home):
    assert chain() == set()
    assert chain() == ALL
    assert description.show_job("p1")["reason"] == "3 steps completed, 3 of them reused"
    assert steps_of("p1", "job") == {"make": "p0-make", "use": "p0-use", "by": "p0-by"}
    assert set(steps_of("p1", "not_reused").values()) == {""}
    assert chain(n=2) == {"make", "use"}
    assert steps_of("p2", "not_reused")["by"] == "changed since job p0-by: input n"
    assert chain(use={"command": "cat ${{inputs.make}}/made"}) == {"make", "by"}
    assert chain(use={"environment_variables": {"A": "b"}}) == {"make", "by"}
    assert chain(use=two_by_two()) == {"make", "by"}
    (tmp_path / "src" / "code").write_text("2")
    assert chain() == {"by"}
    assert steps_of("p6", "not_reused") == {
        "make": "changed since job p0-make: code",
        "use": "changed since job p5-use: input make",
        "by": "",
    }
    (tmp_path / "data").write_text("2")
    assert chain() == {"by"}
    # Its output is as it was: what needs it need not run again.
    assert chain(make={"command": "cat code ${{inputs.d}} > ${{outputs.o}}/made; true"}) == {"use", "by"}
    assert chain(settings={"force_rerun": True}) == set()
    assert chain() == ALL
    last = {one["job"] for one in description.show_job("p10")["steps"]}
    assert last == {"p9-make", "p9-use", "p9-by"}
    remove_folder(drumline_home / "jobs" / "p9-use")
    assert chain() == {"make", "by"}
    why = "job p9-use, which did the same, no longer has the outputs that it wrote"
    assert steps_of("p11", "not_reused")["use"] == why
    remove_folder(drumline_home / "jobs" / "p9-make" / "named-outputs" / "o")
    assert chain() == {"use", "by"}


def test_a_step_that_failed_or_may_differ_each_time_is_not_reused(run, tmp_path):
    (tmp_path / "dice.yml").write_text(json.dumps({"is_deterministic": False, "command": "true"}))
    steps = {"dice": {"component": "./dice.yml"}, "once": step(f"test -e '{tmp_path}/go'")}
    assert run(steps, settings={"continue_on_step_failure": True})["status"] == "Failed"
    (tmp_path / "go").touch()
    assert run(steps, "q")["status"] == "Completed"
    assert reused("q") == set()
    run(steps, "r")
    assert reused("r") == {"once"}


def test_another_job_of_the_same_name_is_not_taken_for_the_one_before(run, drumline_home):
    run({"a": step("echo 1")})
    for name in ("p", "p-a"):
        remove_folder(drumline_home / "jobs" / name)
    run({"a": step("echo 2")})
    run({"a": step("echo 1")}, "q")
    assert reused("q") == set()


def test_an_output_that_was_written_over_is_not_reused(run, tmp_path):
    def write(text):
        return {
            "a": step(f"echo {text} > ${{{{outputs.o}}}}/x", outputs={"o": {"path": str(tmp_path / "out")}})
        }

    run(write(1))
    run(write(1), "q")
    assert reused("q") == {"a"}
    run(write(2), "r")
    run(write(1), "s")
    assert reused("s") == set()
    assert (tmp_path / "out" / "x").read_text() == "1\n"


def test_a_pipe_among_the_data_is_no_reason_to_wait(run, tmp_path):
    (tmp_path / "data").mkdir()
    os.mkfifo(tmp_path / "data" / "pipe")
    (tmp_path / "data" / "loop").symlink_to(tmp_path)
    steps = {"a": step("ls ${{inputs.d}}", inputs={"d": {"path": "data"}})}
    run(steps)
    run(steps, "q")
    assert (wait_for_end("q")["status"], reused("q")) == ("Completed", set())


# code and components


def test_code_is_taken_when_the_pipeline_is_submitted(begin, tmp_path):
    for folder in ("src", "inner", "lib"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "code").write_text("before")
    inner = {"a": step("cat code", code="../src", outputs={})}
    (tmp_path / "inner" / "p.yml").write_text(json.dumps({"jobs": inner}))
    part = {"command": "cat code lib/code", "code": "./src", "additional_includes": ["./lib"]}
    (tmp_path / "part.yml").write_text(json.dumps(part))
    late = {"component": "./part.yml", "inputs": {}}
    gate = {"type": "uri_folder"}
    part["inputs"] = {"after": gate}
    (tmp_path / "part.yml").write_text(json.dumps(part))
    late["inputs"] = {"after": "${{parent.jobs.first.outputs.o}}"}
    begin(
        {
            "first": step(waits_for(tmp_path / "go")),
            "late": late,
            "whole": {
                "type": "pipeline",
                "jobs": {
                    "a": step("cat code", code="src"),
                    "b": {"component": "./part.yml", "inputs": {"after": {"path": "lib"}}},
                },
            },
            "there": {"component": "./inner/p.yml"},
        }
    )
    wait_for_step("first")
    for folder in ("src", "lib"):
        (tmp_path / folder / "code").write_text("after")
    (tmp_path / "part.yml").unlink()
    (tmp_path / "inner" / "p.yml").unlink()
    (tmp_path / "go").touch()
    assert wait_for_end()["status"] == "Completed", description.show_job("p")["reason"]
    for job in ("p-late", "p-whole-a", "p-whole-b", "p-there-a"):
        assert set(log_of(job).replace("before", "before ").split()) == {"before"}, job


def test_a_registered_component_is_a_step(cli, run, tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "code").write_text("registered")
    part = {
        "name": "part",
        "version": "1",
        "type": "command",
        "code": "./src",
        "command": "cat code; echo ${{inputs.n}}",
        "inputs": {"n": {"type": "integer", "default": 4}},
    }
    (tmp_path / "part.yml").write_text(json.dumps(part))
    done = cli("component", "create", "-f", tmp_path / "part.yml")
    assert done.rc == 0, done.err
    shutil.rmtree(tmp_path / "src")
    shown = run(
        {"a": {"component": "azureml:part:1"}, "b": {"component": "azureml:part@latest", "inputs": {"n": 5}}}
    )
    assert shown["status"] == "Completed", shown["reason"]
    assert (log_of("p-a"), log_of("p-b")) == ("registered4\n", "registered5\n")


def test_a_name_that_is_taken_is_left_to_whose_it_is(run, tmp_path):
    (tmp_path / "job.yml").write_text(json.dumps({"name": "p-a", "command": "echo mine"}))
    submit(load_job(tmp_path / "job.yml"))
    wait_for_end("p-a")
    run({"a": step("echo of the step")})
    assert steps_of("p", "job") == {"a": "p-a-2"}
    assert (log_of("p-a"), log_of("p-a-2")) == ("mine\n", "of the step\n")


def test_an_output_of_the_pipeline_may_have_a_place(run, tmp_path):
    steps = {"a": step("echo 1 > ${{outputs.o}}/x", outputs={"o": "${{parent.outputs.made}}"})}
    shown = run(steps, outputs={"made": {"type": "uri_folder", "path": "./there"}})
    assert (tmp_path / "there" / "x").read_text() == "1\n"
    link = Path(shown["run_folder"]) / "named-outputs" / "made"
    assert os.path.realpath(link) == str(tmp_path / "there")


# before anything runs


BAD = {
    "a circle": (
        """\
  a: {command: x, inputs: {i: "${{parent.jobs.b.outputs.o}}"}, outputs: {o: null}}
  b: {command: x, inputs: {i: "${{parent.jobs.a.outputs.o}}"}, outputs: {o: null}}
""",
        "3:31: jobs: the steps wait for each other: a needs b needs a",
    ),
    "a wrong type": ("  a: {component: ./c.yml, inputs: {n: x}}", "3:39: jobs.a.inputs.n: it takes a whole number"),
    "a missing input": ("  a: {component: ./c.yml}", "3:3: jobs.a needs the input 'n' of its component"),
    "no such component": ("  a: {component: ./d.yml}", "3:18: jobs.a.component: no such file"),
    "no such asset": ("  a: {component: 'azureml:d:1'}", "3:18: jobs.a.component: there is no component 'd'"),
    "a bad component": ("  a: {component: ./bad.yml}", "bad.yml:1:10: jobs.a.component.command refers to"),
    "no such code": ("  a: {command: x, code: ./nope}", "3:25: jobs.a.code: no such file"),
    "no such data": ("  a: {command: x, inputs: {d: {path: ./nope}}}", "3:38: jobs.a.inputs.d: there is no"),
    "a binding anywhere": ("  a: {component: ./c.yml, limits: '${{x}}'}", "3:35: jobs.a.limits must be a mapping"),
    "within": ("  a: {type: pipeline, jobs: {b: {command: x, cod: y}}}", "3:46: unknown key 'cod' in jobs.a.jobs.b"),
    "below": ("  a: {component: ./p.yml}", "p.yml:1:42: jobs.a.component.jobs.b.component.code: no such file"),
    "of another kind": ("  a: {type: spark}", "3:13: nodes of type 'spark' are not supported"),
    "a name": ("  A-b: {command: x}", "3:3: the node name 'A-b'"),
    "nothing": ("  {}", "jobs: the pipeline has no jobs"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_mistake_is_told_with_its_place_and_nothing_is_made(
    tmp_path, drumline_home, name, capsys, monkeypatch
):
    from drumline.cli.main import main

    text, said = BAD[name]
    (tmp_path / "c.yml").write_text("{command: 'echo ${{inputs.n}}', inputs: {n: {type: integer}}}")
    (tmp_path / "bad.yml").write_text("command: 'echo ${{inputs.n}}'")
    (tmp_path / "p.yml").write_text("jobs: {b: {component: {command: x, code: ./nope}}}")
    (tmp_path / "job.yml").write_text(f"type: pipeline\njobs:\n{text}\n")
    monkeypatch.chdir(tmp_path)
    assert main(["job", "create", "-f", "job.yml"]) == 2
    err = capsys.readouterr().err
    assert said in err.splitlines()[0], err
    assert "Traceback" not in err
    assert job_names(drumline_home) == []


def test_plan_shows_the_steps_and_makes_nothing(cli, tmp_path, drumline_home):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "x").write_text("")
    inner = {"type": "pipeline", "jobs": {"one": step("echo within"), "two": step("true", "one")}}
    steps = {"b": step("ls ${{inputs.a}}", "a", **two_by_two()), "a": step("true", code="src"), "c": inner}
    file = write_pipeline(tmp_path, steps)
    said = cli("plan", "-f", file)
    assert (said.rc, said.out.splitlines()[0]) == (0, "pipeline of 3 steps"), said.err
    lines = [line.strip() for line in said.out.splitlines()]
    shown = [line for line in lines if line.startswith(("step", "pipeline", "plain", "pytorch"))]
    assert shown[1:] == [
        "step a",
        "plain: 1 rank on 1 node",
        "step c",
        "pipeline of 2 steps",
        "step one",
        "plain: 1 rank on 1 node",
        "step two, after one",
        "plain: 1 rank on 1 node",
        "step b, after a",
        "pytorch: 4 ranks on 2 nodes",
    ]
    found = json.loads(cli("plan", "-f", file, "-o", "json").out)["steps"]
    assert [(one["step"], one["needs"]) for one in found] == [("a", []), ("c", []), ("b", ["a"])]
    assert found[2]["plan"]["distribution"] == "pytorch"
    assert cli("job", "validate", "-f", file).rc == 0
    assert not drumline_home.exists()


def test_validate_says_what_create_would_refuse(cli, tmp_path):
    file = write_pipeline(tmp_path, {"a": step("true", "b"), "b": step("true", "a")})
    done = cli("job", "validate", "-f", file)
    assert done.rc == 2
    assert "jobs: the steps wait for each other: a needs b needs a" in done.err


def test_an_output_whose_files_were_removed_or_written_over_is_not_reused(run, drumline_home):
    steps = {"a": step("echo 1 > ${{outputs.o}}/x"), "b": step("cat ${{inputs.a}}/x", "a")}
    run(steps)
    made = drumline_home / "jobs" / "p-a" / "named-outputs" / "o" / "x"
    run(steps, "q")
    assert reused("q") == {"a", "b"}
    made.unlink()
    assert run(steps, "r")["status"] == "Completed"
    assert reused("r") == {"b"}
    (drumline_home / "jobs" / "r-a" / "named-outputs" / "o" / "x").write_text("2\n")
    assert run(steps, "s")["status"] == "Completed"
    assert reused("s") == {"b"}


def test_a_file_of_another_name_is_another_input(run, tmp_path):
    for name, pipeline, known in (("a.csv", "p", set()), ("a.csv", "q", {"a"}), ("a.json", "r", set())):
        (tmp_path / name).write_text("1")
        data = {"type": "uri_file", "path": str(tmp_path / name)}
        run({"a": step("echo ${{inputs.d}}", inputs={"d": data})}, pipeline)
        assert reused(pipeline) == known


def test_the_output_that_every_step_has_feeds_another(run):
    text = "${{parent.jobs.a.outputs.default}}"
    steps = {"a": {"command": "echo 1 > outputs/x"}, "b": step("cat ${{inputs.d}}/x", inputs={"d": text})}
    assert run(steps)["status"] == "Completed"
    run(steps, "q")
    assert reused("q") == {"a", "b"}


def test_data_that_changed_while_a_step_ran_are_not_what_it_was_made_of(begin, run, tmp_path):
    (tmp_path / "data").write_text("1")
    data = {"type": "uri_file", "path": str(tmp_path / "data")}
    command = waits_for(tmp_path / "go") + "; cat ${{inputs.d}} > ${{outputs.o}}/made"
    steps = {"a": step(command, inputs={"d": data})}
    begin(steps)
    wait_for_step("a")
    (tmp_path / "data").write_text("2")
    (tmp_path / "go").touch()
    assert wait_for_end()["status"] == "Completed"
    (tmp_path / "data").write_text("1")
    run(steps, "q")
    assert reused("q") == set()


def test_an_end_that_is_asked_for_between_two_steps_is_none_that_went_well(drumline_home, monkeypatch):
    folder = a_driver_at({"a": [], "b": ["a"]}, e.StepStarted(2, "a", ""), e.StepEnded(3, "a", "Completed"))

    def asked_for_meanwhile(self):
        Path(folder.cancel).write_text(json.dumps({"by": "me"}))
        return iter(())

    monkeypatch.setattr(children.ChildJobs, "collect_ended", asked_for_meanwhile)
    assert PipelineDriver(folder, os.pipe()[0]).run()[:1] == ("Canceled",)


def test_another_driver_knows_which_step_failed_first(drumline_home):
    folder = a_driver_at(
        {"a": [], "b": []},
        e.StepStarted(2, "a", ""),
        e.StepStarted(2, "b", ""),
        e.StepEnded(3, "b", "Failed", "it was wrong"),
        e.StepEnded(4, "a", "Canceled", "canceled by its pipeline"),
    )
    assert PipelineDriver(folder, os.pipe()[0]).run().reason == "step b failed: it was wrong"


def test_a_driver_that_fails_at_once_leaves_no_more_events_each_time(drumline_home, monkeypatch):
    folder = a_driver_at({"a": []})
    Path(folder.cancel).write_text(json.dumps({"by": "me"}))
    monkeypatch.setattr(children.ChildJobs, "collect_ended", lambda self: 1 / 0)
    sizes = set()
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            PipelineDriver(folder, os.pipe()[0]).run()
        sizes.add(os.path.getsize(folder.events))
    assert len(sizes) == 1  # By which its guard knows that it gets nowhere.


def a_driver_at(needs, *events):
    """The run folder of a pipeline whose driver comes to these steps after those events."""
    folder = RunFolder.for_job("p")
    os.makedirs(folder.system_logs)
    steps = [{"name": name, "needs": need, "job": {}} for name, need in needs.items()]
    Path(folder.graph).write_text(json.dumps({"steps": steps}))
    folder.begin(e.JobSubmitted(1, "me", "local", "pipeline"))
    for event in events:
        folder.append(event)
    return folder


def test_a_parallel_step_runs_over_files_on_its_nodes_and_again_where_it_failed(run, tmp_path):
    (tmp_path / "data").mkdir()
    for number in range(6):
        (tmp_path / "data" / str(number)).write_text(str(number))
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "score.py").write_text(
        "import os\n"
        "def run(mini_batch):\n"
        "    rows = [open(path).read() + os.environ['WORD'] for path in mini_batch]\n"
        f"    if '3!' in rows and not os.path.exists('{tmp_path}/fixed'):\n"
        f"        open('{tmp_path}/fixed', 'w')\n"
        "        raise ValueError('bad')\n"
        "    return rows\n"
    )
    score = {
        "type": "parallel",
        "inputs": {"x": {"type": "uri_folder", "path": "data"}},
        "outputs": {"o": {"type": "uri_file"}},
        "input_data": "${{inputs.x}}",
        "mini_batch_size": 2,
        "max_concurrency_per_instance": 1,
        "mini_batch_error_threshold": 0,
        "retry_settings": {"max_retries": 0},
        "resources": {"instance_count": 2},
        "environment_variables": {"WORD": "!"},
        "drumline": {"max_restarts": 1},
        "task": {"type": "run_function", "code": "src", "entry_script": "score.py"},
    }
    score["task"]["append_row_to"] = "${{outputs.o}}"
    show = {"command": "cat ${{inputs.o}}", "inputs": {"o": "${{parent.jobs.score.outputs.o}}"}}
    shown = run({"score": score, "show": show})
    assert shown["reason"] == "2 steps completed"
    assert log_of("p-show").split() == ["0!", "1!", "2!", "3!", "4!", "5!"]
    assert description.show_job("p-score")["attempt"] == 1


def test_a_parallel_job_by_itself_is_looked_at_and_run(cli, tmp_path):
    (tmp_path / "score.py").write_text("def run(mini_batch):\n    return mini_batch\n")
    fields = {
        "type": "parallel",
        "name": "alone",
        "inputs": {"x": {"type": "uri_file", "path": "score.py"}},
        "outputs": {"o": None},
        "input_data": "${{inputs.x}}",
        "max_concurrency_per_instance": 1,
        "task": {"code": ".", "entry_script": "score.py", "append_row_to": "${{outputs.o}}/rows"},
    }
    file = tmp_path / "alone.yml"
    file.write_text(json.dumps(fields))
    assert json.loads(cli("job", "validate", "-f", file).out) == {"result": "Succeeded", "warnings": []}
    assert "parallel: 1 rank on 1 node" in cli("plan", "-f", file).out
    assert cli("job", "create", "-f", file, "--stream").rc == 0
    assert cli("job", "download", "-n", "alone", "--output-name", "o", "-p", tmp_path / "got").rc == 0
    assert (tmp_path / "got/named-outputs/o/rows").read_text() == f"{tmp_path}/score.py\n"
    file.write_text(json.dumps({**fields, "name": "other", "partition_keys": ["a"]}))
    refused = cli("job", "create", "-f", file)
    assert (refused.rc, "partition_keys: tables are not split here" in refused.err) == (2, True)


@pytest.fixture
def drive_here(tmp_path, monkeypatch):
    """Run a pipeline by a driver that is a fork of this process, after ``change``, which is called there first."""

    def to_end(steps, name, change):
        with monkeypatch.context() as patched:
            patched.setattr(recovery, "start_driver", lambda *_: None)
            submit(load_job(write_pipeline(tmp_path, steps, name)))
        child = os.fork()
        if not child:
            change()
            process._be_driver(RunFolder.for_job(name))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        return wait_for_end(name)

    return to_end


def test_a_job_that_is_removed_before_a_step_takes_it_over_is_not_reused(run, drive_here, tmp_path):
    steps = {"a": step(counts(tmp_path / "a", "echo 1 > ${{outputs.o}}/x"))}
    run(steps)
    find = reuse.find

    def find_and_remove(key, outputs):
        found = find(key, outputs)
        assert found == "p-a"
        pruning.delete_jobs(["p"])
        return found

    shown = drive_here(steps, "q", lambda: setattr(reuse, "find", find_and_remove))
    assert (shown["status"], shown["reason"]) == ("Completed", "1 step completed")
    assert runs(tmp_path / "a") == 2


def test_nothing_is_removed_while_a_step_takes_it_over(run, drive_here, tmp_path, drumline_home):
    steps = {"a": step(counts(tmp_path / "a"))}
    run(steps)
    note = children.ChildJobs.note

    def note_locked(self, event):
        if isinstance(event, e.StepStarted):
            with open(drumline_home / "removal.lock") as lock, contextlib.suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                (tmp_path / "free").touch()
        note(self, event)

    drive_here(steps, "q", lambda: setattr(children.ChildJobs, "note", note_locked))
    assert reused("q") == {"a"}
    assert not (tmp_path / "free").exists()


def test_a_verb_that_changes_a_job_takes_no_step_that_was_reused(run, cli, drumline_home):
    """Its job is a step of the pipeline that ran it."""
    steps = {"a": step("true")}
    run(steps)
    run(steps, "q")
    assert json.loads(cli("job", "show", "q/a").out)["name"] == "p-a"
    verbs = (
        ["cancel"],
        ["preempt"],
        ["delete", "--yes"],
        ["archive"],
        ["restore"],
        ["update", "--set", "tags.a=b"],
    )
    before = (drumline_home / "jobs" / "p-a" / "events.jsonl").read_text()
    for verb, *options in verbs:
        done = cli("job", verb, "q/a", *options)
        assert (done.rc, done.err) == (
            2,
            "error: step 'a' of job q did not run: its outputs are those of job p-a\n"
            "hint: to mean that job, give its name: p-a\n",
        ), verb
    assert (drumline_home / "jobs" / "p-a" / "events.jsonl").read_text() == before
    assert cli("job", "archive", "p/a").rc == 0
    again = cli("job", "rerun", "q/a", "--stream")
    assert again.rc == 0, again.err
    assert "note: step 'a' of job q did not run: its outputs are those of job p-a\n" in again.err
