"""The end of a job that failed, on the terminal of who watched it and on that of who did not."""

import subprocess
import sys

FAILS = "raise ValueError('bad batch')"
LONG = "print('x' * 70000); raise SystemExit(3)"


def run(program, stderr, *options):
    command = [
        sys.executable,
        "-m",
        "drumline",
        "run",
        "--warm",
        "off",
        *options,
        "--",
        sys.executable,
        "-c",
        program,
    ]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=stderr, text=True, check=False)


def test_a_traceback_that_was_just_shown_is_not_repeated(drumline_home):
    done = run(FAILS, subprocess.STDOUT)
    assert done.returncode == 1
    assert done.stdout.count("Traceback") == 1
    assert "last lines" not in done.stdout
    assert ": ValueError: bad batch" in done.stdout
    assert "next: drumline job show" in done.stdout


def test_who_reads_only_the_errors_has_the_last_lines(drumline_home):
    done = run(FAILS, subprocess.PIPE)
    assert done.stdout.count("Traceback") == 1
    assert "last lines of rank 0:\n  Traceback" in done.stderr


def test_who_has_left_the_rank_out_has_its_last_lines(drumline_home):
    program = "import os, signal\nif os.environ['RANK'] == '1': raise ValueError('bad batch')\nsignal.pause()"
    done = run(program, subprocess.STDOUT, "--procs", "2", "--ranks", "0")
    assert "last lines of rank 1:\n  Traceback" in done.stdout


def test_a_long_line_is_cut_with_a_mark(drumline_home):
    done = run(LONG, subprocess.PIPE)
    assert len(done.stdout) > 70000
    assert f"\n  {'x' * 500} ... (" in done.stderr
    assert "more characters)\n" in done.stderr
    assert len(done.stderr) < 1500
