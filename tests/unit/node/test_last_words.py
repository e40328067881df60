"""The line of a log that tells why its program ended."""

import subprocess
import sys

import pytest

from drumline.node.diagnostics import last_words
from drumline.node.launcher.launcher_log import read_words
from drumline.supervisor.explaining import exit_messages


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ('echo one\necho "a b")\n', "line 2: syntax error near unexpected token `)': `echo \"a b\")'"),
        ("echo one\nfor i in 1 2; do\n", "line 3: syntax error: unexpected end of file"),
        ('echo one\necho "x\n', "unexpected EOF while looking for matching `\"'"),
    ],
)
def test_a_mistake_in_the_syntax_of_a_shell(script, told):
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    said = last_words.find_last_words(done.stdout + done.stderr)
    assert done.returncode != 0
    assert told in said
    assert exit_messages._PYTHONS_OWN.search(said)


def test_the_last_line_is_what_a_program_said():
    assert last_words.find_last_words("one\n  two  \n\n") == "two"
    assert last_words.find_last_words("\n") == ""
    # Another program's text that only looks alike.
    assert last_words.find_last_words("x: line 2: other\ny: line 2: `text'\n") == "y: line 2: `text'"


def test_what_the_c_library_says_before_it_aborts():
    libc = "import ctypes, faulthandler\nfaulthandler.enable()\nlibc = ctypes.CDLL(None)\n"
    twice = "libc.malloc.restype = ctypes.c_void_p\np = ctypes.c_void_p(libc.malloc(100))\nlibc.free(p)\nlibc.free(p)\n"
    done = subprocess.run([sys.executable, "-c", libc + twice], capture_output=True, text=True, check=False)
    assert "Fatal Python error: Aborted" in done.stderr
    assert last_words.find_abort_reason(done.stderr).startswith("free(): double free")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "step 1\nterminate called after throwing an instance of 'c10::DistBackendError'\n  what():  NCCL error 5\n"
            "more of it\nFatal Python error: Aborted\n\nCurrent thread 0x1 (most recent call first):\n",
            "c10::DistBackendError: NCCL error 5",
        ),
        ("terminate called after throwing an instance of 'int'\n", "int"),
        ("terminate called without an active exception\n", "terminate called without an active exception"),
        (
            "python: t.cpp:5: f: Assertion `x == 3' failed.\n",
            "python: t.cpp:5: f: Assertion `x == 3' failed.",
        ),
        ("F1122 7 a.cc:3] Check failed: n > 0 (0 vs. 0)\n", "F1122 7 a.cc:3] Check failed: n > 0 (0 vs. 0)"),
        ("*** stack smashing detected ***: terminated\n", "*** stack smashing detected ***: terminated"),
        ("step 1\nFatal Python error: Aborted\n", ""),
        ("", ""),
    ],
)
def test_what_native_code_says_before_it_aborts(text, told):
    assert last_words.find_abort_reason(text) == told


def test_a_launcher_is_quoted_without_its_warnings(tmp_path):
    log = tmp_path / "mpirun.log"
    warning = "[vm:21428] plm:rsh: Warning: setpgid(21438,21438) failed in parent with errno=Permission denied(13)\n"
    line = "-" * 40 + "\n"
    log.write_text(f"{warning}{line}mpirun has exited due to process rank 2 with PID 0\n{line}")
    assert read_words(str(log)) == "mpirun has exited due to process rank 2 with PID 0"
    log.write_text(warning)
    assert read_words(str(log)) == warning.strip()
