"""The pages of real jobs on a terminal: what they say, how wide they are, and that the next command works."""

import json
import re
import shlex
import sys

from cli_jobs import LOG, on_terminal, one_rank, two_by_two, write_script
from pipelines import step, write_pipeline

from drumline.cli.screen import measure

HOSTILE = "鼓线 \x1b[2J\x1b]0;title\x07" * 30
FAILS = f"""{LOG}
if os.environ["RANK"] == "0":
    log("loss", 4.0, 0.25, 0.5)
    log("lr", 0.001)
    open("outputs/partial", "w").write("x" * 2000)
    os.rename("outputs/partial", "outputs/model")
import time
if os.environ["RANK"] == "3":
    while not os.path.exists("outputs/model"):
        time.sleep(0.01)
    print({HOSTILE!r})
    raise ValueError("bad batch " + {HOSTILE!r})
time.sleep(60)
"""


def page_of(name, cwd, columns=80):
    code, text = on_terminal("job", "show", name, cwd=cwd, columns=columns)
    assert code == 0, text
    plain = re.sub(r"\x1b\[\d+m", "", text)
    assert all(line.isprintable() for line in plain.splitlines())
    for line in plain.splitlines():
        assert measure(line) <= columns or line.startswith("next:"), line
    return plain


def next_of(page):
    (command,) = re.findall(r"^next: drumline (.*)$", page, re.MULTILINE)
    assert page.endswith(command + "\n")
    return shlex.split(command)


def test_the_page_of_a_job_that_failed(cli, tmp_path):
    fields = {"display_name": HOSTILE, "drumline": {"grace": 0.2}, "inputs": {"lr": 0.001}}
    write_script(tmp_path, FAILS, "python train.py --lr ${{inputs.lr}}", **two_by_two(**fields))
    assert cli("job", "create", "-f", "job.yml", "--stream").rc == 1
    for columns in (60, 100):
        page = page_of("job", tmp_path, columns)
    assert page.startswith("job   Failed after ")
    assert "2 nodes x 2 ranks on local" in page
    assert "rank 3 on node 1 failed first, " in page
    assert "ValueError: bad batch" in page
    assert re.search(r"runs +python .*train.py --lr .*\n +inputs +lr 0.001\n", page)
    assert re.search(r"ranks +3 exit 1   0-2 signal 15\n", page)
    assert re.search(r"metrics +loss 0.5 \(best 0.25 at 1\)   lr 0.001\n", page)
    assert re.search(
        r"files +outputs/ 1.95 KiB   user_logs/ [\d.]+ (Ki)?B   code 1 file \([0-9a-f]{7}\)", page
    )
    assert re.search(r"start-up +[\d.]+m?s in all   ", page)
    assert "last lines of rank 3\n" in page
    assert next_of(page) == ["job", "logs", "-n", "job", "--rank", "3"]
    said = cli(*next_of(page))
    assert said.rc == 0, said.err
    assert "bad batch" in said.out
    # Piped, it is what it was.
    assert json.loads(cli("job", "show", "job").out)["failed_rank"] == 3
    assert cli("job", "show", "job", "-o", "table").out.startswith("job   Failed after ")
    listed = on_terminal("job", "list", cwd=tmp_path, columns=80)[1].splitlines()
    assert re.search(r" 2x2  local +loss 0.5  Failed: rank 3", re.sub(r"\x1b\[\d+m", "", listed[1]))
    assert all(measure(re.sub(r"\x1b\[\d+m", "", line)) <= 80 for line in listed)


def test_the_page_of_a_job_that_completed_and_of_one_that_waits(cli, tmp_path):
    write_script(tmp_path, f"{LOG}\nopen('outputs/model', 'w').write('x')\n", **one_rank())
    assert cli("job", "create", "-f", "job.yml", "--stream").rc == 0
    page = page_of("job", tmp_path)
    assert page.startswith("job   Completed after ")
    assert cli(*next_of(page)).rc == 0
    assert (tmp_path / "artifacts" / "outputs" / "model").exists()


def test_the_pages_of_a_pipeline(cli, tmp_path):
    steps = {
        "prepare": step("true", **one_rank()),
        "train": step("exit 7", "prepare", **one_rank()),
        "report": step("true", "train", **one_rank()),
    }
    path = write_pipeline(tmp_path, steps)
    code, text = on_terminal("job", "create", "-f", str(path), "--stream", cwd=tmp_path)
    assert code == 1
    # Drawn over itself, and at the end with all that there is.
    final = re.sub(r"\x1b\[\d+m", "", text.rpartition("\x1b[J")[2])
    assert re.search(r"^p   Failed after .*   3 of 3 steps ended$", final, re.MULTILINE)
    assert re.search(r"^train +\S+ +\S+ +Failed: ", final, re.MULTILINE)
    page = page_of("p", tmp_path)
    assert page.startswith("p   Failed after ")
    assert re.search(r"^prepare +[\d.]+s +\S+ +Completed$", page, re.MULTILINE)
    assert re.search(r"^report +- +- +Skipped", page, re.MULTILINE)
    shown = cli(*next_of(page))
    assert json.loads(shown.out)["exit_code"] == 7
    code, text = on_terminal("job", "stream", "p", "--lines", cwd=tmp_path)
    assert "step train failed" in text
    piped = cli("job", "stream", "p")
    assert "step train failed" in piped.out
    assert "\x1b" not in piped.out


def test_the_page_of_a_sweep_has_the_best_trial_first(cli, tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text(LOG + "log('loss', float(sys.argv[1]))\n")
    (tmp_path / "sweep.yml").write_text(
        json.dumps(
            {
                "type": "sweep",
                "name": "s",
                "trial": {"code": "src", "command": "python train.py ${{search_space.x}}", **one_rank()},
                "sampling_algorithm": "grid",
                "search_space": {"x": {"type": "choice", "values": [0.5, 0.123456, 2.0]}},
                "objective": {"goal": "minimize", "primary_metric": "loss"},
                "limits": {"max_total_trials": 3, "max_concurrent_trials": 3},
            }
        )
    )
    assert cli("job", "create", "-f", "sweep.yml", "--stream").rc == 0
    page = page_of("s", tmp_path)
    assert page.startswith("s   Completed after ")
    assert "3 trials of 3" in page
    assert re.search(r"^TRIAL +loss \(min\) +TIME +x +STATUS$", page, re.MULTILINE)
    assert re.findall(r"^s_\d +(\S+) +\S+ +(\S+) +Completed$", page, re.MULTILINE) == [
        ("0.123", "0.123"),
        ("0.5", "0.5"),
        ("2", "2"),
    ]
    best = json.loads(cli(*next_of(page)).out)
    assert best["metrics"] == {"loss": 0.123456}


def test_a_sweep_without_a_file_draws_its_trials_with_the_times_of_the_list(cli, tmp_path):
    (tmp_path / "train.py").write_text(
        "import sys\nfrom drumline.v1 import Run\nRun.get_context().log('loss', float(sys.argv[1]))\n"
    )
    words = (
        "--lr",
        "0.5,0.25",
        "--goal",
        "min:loss",
        "--name",
        "s",
        "--",
        sys.executable,
        "train.py",
        "{lr}",
    )
    code, text = on_terminal("sweep", *words, cwd=tmp_path, columns=100)
    assert code == 0, text
    final = re.sub(r"\x1b\[\d+m", "", text.rpartition("\x1b[J")[2])
    assert re.search(r"^s   Completed after .*   2 of 2 trials ended   best 0.25 of ", final, re.MULTILINE)
    trials = json.loads(cli("job", "show", "s").out)["trials"]
    listed = cli("job", "list", "-p", "s", "-o", "table").out.splitlines()
    for trial in trials:
        name = trial["trial"]
        (drawn,) = (line.split() for line in final.splitlines() if line.split()[:1] == [name])
        (line,) = (line.split() for line in listed if line.split()[0] == name)
        assert drawn[2] == line[2]
