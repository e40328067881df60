"""``drumline sweep``: the same sweep as from a job file."""

import math
import sys

import pytest
import yaml

from drumline.cli.main import main
from drumline.control.facts import description

GOAL = ("--goal", "min:loss")


def dry(cli, *words):
    done = cli("sweep", *words[:-1], "--dry-run", "--", *words[-1].split())
    assert done.rc == 0, done.err
    return yaml.safe_load(done.out)


def test_options_become_the_fields_of_a_job_file(cli, tmp_path):
    (tmp_path / ".env").write_text("WORKERS=4\n")
    options = "--lr 1e-4:1e-1:log --batch 32,64 --drop=0:0.5 --layers 2:5 --decay 0:0.2:0.1 --units 8:512:log"
    options += (
        " --trials 8 --concurrent 2 --nodes 2 --procs 3 --timeout 600 --trial-timeout 60 --early-stop median"
    )
    options += " --name found --env A=1 --env-file .env --warm off --seed 7"
    program = "python train.py --lr={lr} {batch} {drop} {layers} {decay} {units} {{lr}} {'a':1}"
    made = dry(cli, *options.split(), *GOAL, program)
    log = {"type": "loguniform", "min_value": math.log(1e-4), "max_value": math.log(1e-1)}
    assert made["search_space"] == {
        "lr": log,
        "batch": {"type": "choice", "values": [32, 64]},
        "drop": {"type": "uniform", "min_value": 0, "max_value": 0.5},
        "layers": {"type": "choice", "values": [2, 3, 4, 5]},
        "decay": {"type": "choice", "values": [0.0, 0.1, 0.2]},
        "units": {"type": "qloguniform", "min_value": math.log(8), "max_value": math.log(512), "q": 1},
    }
    names = ("batch", "drop", "layers", "decay", "units")
    values = " ".join(f"${{{{search_space.{name}}}}}" for name in names)
    trial = made["trial"]
    assert (
        trial["command"]
        == f"python train.py --lr=${{{{search_space.lr}}}} {values} '{{lr}}' '{{'\"'\"'a'\"'\"':1}}'"
    )
    assert trial["environment_variables"] == {"A": "1", "WORKERS": "4"}
    assert trial["distribution"] == {"type": "pytorch", "process_count_per_instance": 3}
    assert (trial["resources"]["instance_count"], trial["drumline"]["warm"]) == (2, "off")
    assert made["objective"] == {"goal": "minimize", "primary_metric": "loss"}
    assert made["limits"] == {
        "max_total_trials": 8,
        "max_concurrent_trials": 2,
        "timeout": 600,
        "trial_timeout": 60,
    }
    assert made["early_termination"]["type"] == "median_stopping"
    assert (made["name"], made["sampling_algorithm"]) == ("found", {"type": "random", "seed": 7})


def test_lists_alone_are_tried_in_full_and_texts_are_quoted(cli):
    made = dry(
        cli, "--opt", "adam,sgd", "--note", "a b,c", "--goal", "max:acc", "python train.py {opt} {note}"
    )
    assert (made["sampling_algorithm"], made["limits"]["max_total_trials"]) == ("grid", 4)
    assert made["trial"]["command"] == "python train.py ${{search_space.opt}} '${{search_space.note}}'"


@pytest.mark.parametrize(
    ("words", "said", "hint"),
    [
        (["--lr", "0:0.5"], "--trials is missing", "--trials 20"),
        (
            ["--lr", "1,2", "--trial", "4"],
            "--trial is neither an option nor a hyperparameter",
            "did you mean --trials?",
        ),
        (["--lrr", "1,2"], "--lrr is neither an option nor a hyperparameter", "did you mean --lr?"),
        (["--lr", "0:1:log", "--trials", "2"], "a logarithmic scale begins above 0", ""),
        (["--lr", "2:1", "--trials", "2"], "no number between its bounds", "the lower bound stands first"),
        (["--lr", "5"], "'5' is no search space", "--lr LOW:HIGH"),
        (["--lr", "a:b"], "'a:b' is no search space", "--lr LOW:HIGH"),
        (["--lr", "0:1:x"], "the third part is 'log' or a step above 0", "--lr 0:1:log"),
        (["--lr"], "--lr: its search space is missing", ""),
        (["--lr", "1,2", "--lr", "3,4"], "--lr is given twice", ""),
        (["--lr", "1,2", "train.py"], "unrecognized argument: train.py", "the program stands after --"),
        (["--lr", "1,2", "--early-stop", "best"], "'best' is no policy", "median, bandit:0.1"),
        (["--lr", "1,2", "--trials", "0"], "--trials must be at least 1; got 0", ""),
        (["--lr", "1,2", "--sampling", "grid", "--seed", "1"], "--seed has no effect", ""),
        (["--lr", "0:1.5", "--sampling", "grid", "--trials", "2"], "--lr is a range", ""),
    ],
)
def test_what_cannot_be_is_refused_before_anything_runs(capsys, drumline_home, words, said, hint):
    assert main(["sweep", *words, *GOAL, "--", "python", "train.py", "{lr}"]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert hint in err
    assert not (drumline_home / "jobs").exists()


@pytest.mark.parametrize("goal", [[], ["--goal", "loss"], ["--goal", "least:loss"], ["--goal", "min:"]])
def test_a_goal_is_wanted(capsys, goal):
    assert main(["sweep", "--lr", "1,2", *goal, "--", "true", "{lr}"]) == 2
    assert "hint: --goal min:loss" in capsys.readouterr().err


def test_a_sweep_without_a_file_runs_and_its_file_does_too(cli, tmp_path):
    (tmp_path / "train.py").write_text(
        "import sys\nfrom drumline.v1 import Run\nRun.get_context().log('loss', float(sys.argv[1]))\n"
    )
    words = ("--lr", "0.5,0.25", *GOAL, "--name", "found", "--save-as", "job.yml")
    done = cli("sweep", *words, "--", sys.executable, "train.py", "{lr}")
    assert done.rc == 0, done.err
    assert "step trial_1 completed: best loss 0.25" in done.out
    assert description.show_job("found")["best_trial"]["params"] == {"lr": 0.25}
    again = cli("job", "validate", "-f", "job.yml")
    assert again.rc == 0, again.err
