"""The batch script as text. That sbatch reads it so, tests/integration/slurm/test_script.py asks sbatch."""

import shlex
import subprocess
from types import SimpleNamespace

import pytest
from planning import plan

from drumline.contract.folder import RunFolder
from drumline.contract.plan import Asked
from drumline.engines.slurm import options

NASTY = [
    "a b", 'say "hi"', "it's", "back\\slash", "end\\", '\\"', "a#b", " # c", "$(id)", "`id`", ": x", "%j", "a;b", "'",
    '"', "''", "--wrap=x", "x=y", "ünï", "~", "(a)", "a|b&c", "*", "",
]  # fmt: skip


def job(compute=None, asked=None, **changed):
    made = plan(2, name="calm_drum", at={"engine": "slurm"})
    compute = {"python": "/opt/venv/bin/python", **(compute or {})}
    changed = {"grace_s": 30.0, "cores_wanted": 0, **changed}
    return made._replace(compute=compute, asked=Asked(**(asked or {})), **changed)


def render(*arguments, folder="/home/ann/jobs/calm_drum", **settings):
    return options.render(job(*arguments, **settings), RunFolder(folder))


def options_in(text):
    """Name to value, as a shell would read the words of those lines."""
    found = {}
    for line in text.splitlines():
        if line.startswith("#SBATCH "):
            (word,) = shlex.split(line.removeprefix("#SBATCH "))
            name, has_value, value = word.removeprefix("--").partition("=")
            found[name] = value if has_value else None
    return found


def test_a_plain_job():
    assert render() == (
        "#!/bin/bash\n"
        "#SBATCH --job-name=calm_drum\n"
        "#SBATCH --nodes=2\n"
        "#SBATCH --ntasks-per-node=1\n"
        "#SBATCH --chdir=/home/ann/jobs/calm_drum\n"
        "#SBATCH --output=/home/ann/jobs/calm_drum/system_logs/slurm.log\n"
        "#SBATCH --open-mode=append\n"
        "#SBATCH --cpus-per-task=1\n"
        "#SBATCH --no-requeue\n"
        "#SBATCH --signal=B:USR2@60\n"
        "export DRUMLINE_HOME=/home/ann\n"
        "exec /opt/venv/bin/python -P -m drumline.supervisor --batch /home/ann/jobs/calm_drum\n"
    )


def test_one_that_asks_for_much():
    compute = {
        "partition": "main",
        "account": "physics",
        "spot_partition": "spot",
        "memory_per_node": "64G",
        "sbatch_options": ["--constraint=a100&nvlink", "--exclusive"],
        "setup": "module purge\nmodule load 'cuda/12'\n",
    }
    asked = {"priority": "low", "job_tier": "spot", "options": {"comment": 'for "ann"', "mail_type": "END"}}
    assert render(compute, asked, timeout_s=3600.0) == (
        "#!/bin/bash\n"
        "#SBATCH --job-name=calm_drum\n"
        "#SBATCH --nodes=2\n"
        "#SBATCH --ntasks-per-node=1\n"
        "#SBATCH --chdir=/home/ann/jobs/calm_drum\n"
        "#SBATCH --output=/home/ann/jobs/calm_drum/system_logs/slurm.log\n"
        "#SBATCH --open-mode=append\n"
        "#SBATCH --partition=spot\n"
        "#SBATCH --account=physics\n"
        "#SBATCH --nice=1000\n"
        "#SBATCH --cpus-per-task=1\n"
        "#SBATCH --mem=64G\n"
        "#SBATCH --time=66\n"
        "#SBATCH --constraint=a100&nvlink\n"
        "#SBATCH --exclusive\n"
        '#SBATCH --comment="for \\"ann\\""\n'
        "#SBATCH --mail-type=END\n"
        "#SBATCH --requeue\n"
        "#SBATCH --signal=B:USR2@60\n"
        "export DRUMLINE_HOME=/home/ann\n"
        "module purge\n"
        "module load 'cuda/12'\n"
        "exec /opt/venv/bin/python -P -m drumline.supervisor --batch /home/ann/jobs/calm_drum\n"
    )


def test_without_a_python_of_the_compute_it_is_this_one():
    import sys

    assert f"exec {shlex.quote(sys.executable)} -P" in render({"python": None})


def test_a_value_is_one_word_whatever_is_in_it():
    for value in NASTY:
        found = options_in(render(asked={"options": {"comment": value}}))
        assert found["comment"] == value
        assert len(found) == 10


@pytest.mark.parametrize(
    "name", ["a 0", "a'; echo foo", "a$(id)", "a`id`", 'a"b', "a#b", "50%", "%j", "a;b", "ünï", "-x"]
)
def test_a_run_folder_of_any_name_is_itself_for_sbatch_and_for_the_shell(name, tmp_path):
    home = tmp_path / name
    home.mkdir()
    folder = home / "jobs" / "calm_drum"
    text = render({"python": "/bin/echo"}, folder=str(folder))
    found = options_in(text)
    assert found["chdir"] == str(folder)
    assert found["output"].replace("%%", "%") == f"{folder}/system_logs/slurm.log"
    done = subprocess.run(["/bin/bash", "-eu"], input=text, capture_output=True, text=True, cwd=tmp_path)
    assert (done.stdout, done.stderr) == (f"-P -m drumline.supervisor --batch {folder}\n", "")


def test_what_the_setup_exports_reaches_the_supervisor_and_its_sbatch_lines_reach_nobody(tmp_path):
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "$HELLO" "$DRUMLINE_HOME"\n')
    python.chmod(0o700)
    text = render({"python": str(python), "setup": "export HELLO='a b'\n#SBATCH --nodes=9"})
    lines = text.splitlines()
    first = next(index for index, line in enumerate(lines) if not line.startswith("#"))
    assert lines.index("#SBATCH --nodes=9") > first
    done = subprocess.run(["/bin/bash", "-eu"], input=text, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("a b /home/ann\n", "")


def test_the_log_is_where_the_output_goes():
    folder = RunFolder("/home/ann/jobs/calm_drum")
    assert options.log_of(folder) == options_in(options.render(job(), folder))["output"]


def test_it_is_pure(tmp_path):
    folder = SimpleNamespace(
        root=str(tmp_path), path=f"{tmp_path}/j", system_logs=f"{tmp_path}/j/system_logs"
    )
    assert options.render(job(), folder) == options.render(job(), folder)
    assert list(tmp_path.iterdir()) == []
