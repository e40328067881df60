"""The line of a log that tells why its program ended."""

import subprocess
import sys
import time

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
    assert last_words.find_last_words("one\ntwo  \n\n") == "two"
    assert last_words.find_last_words("zero\none\n  two  \n\n") == "one two"
    assert last_words.find_last_words("\n") == ""
    # Another program's text that only looks alike.
    assert last_words.find_last_words("x: line 2: other\ny: line 2: `text'\n") == "y: line 2: `text'"


def test_semaphores_that_a_stopped_program_left_are_no_words_of_it():
    text = (
        "cannot read shard 7\n/usr/lib/python3.14/multiprocessing/resource_tracker.py:441: UserWarning: "
        "resource_tracker: There appear to be 2 leaked semaphore objects to clean up at shutdown: {'/mp-a', '/mp-b'}\n"
        "  warnings.warn(\n"
    )
    assert last_words.find_last_words(text) == "cannot read shard 7"


def test_what_the_c_library_says_before_it_aborts():
    libc = "import ctypes, faulthandler\nfaulthandler.enable()\nlibc = ctypes.CDLL(None)\n"
    twice = "libc.malloc.restype = ctypes.c_void_p\np = ctypes.c_void_p(libc.malloc(100))\nlibc.free(p)\nlibc.free(p)\n"
    done = subprocess.run([sys.executable, "-c", libc + twice], capture_output=True, text=True, check=False)
    assert "Fatal Python error: Aborted" in done.stderr
    assert last_words.find_report(done.stderr, "").said.startswith("free(): double free")


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
    assert last_words.find_report(text, "").said == told


RULER = "-" * 74 + "\n"
NO_SLOTS = (
    "There are not enough slots available in the system to satisfy the 8\n"
    "slots that were requested by the application:\n\n  python\n\nEither request fewer procs for your application, or\n"
    "make more slots available for use.\n"
)
EXITED = (
    "prterun has exited due to process rank 2 with PID 31675 on node node-1 exiting\n"
    "improperly. There are three reasons this could occur:\n\n1. this process did not call init\n"
)
BAD_END = (
    f"{'=' * 83}\n=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n=   EXIT CODE: 9\n{'=' * 83}\n"
    "YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)\n"
    "This typically refers to a problem with your application.\nPlease see the FAQ page for debugging suggestions\n"
)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            f"step 1\n{RULER}{NO_SLOTS}{RULER}\0\n",
            "There are not enough slots available in the system to satisfy the 8 "
            "slots that were requested by the application:",
        ),
        (
            f"{RULER}MPI_ABORT was invoked on rank 2\n{RULER}\0[vm:0] *** Unknown error\n{RULER}{EXITED}{RULER}",
            "prterun has exited due to process rank 2 with PID 31675 on node node-1 exiting improperly",
        ),
        (f"{RULER}no such program: x\n{RULER}4 total processes failed to start\n", "no such program: x"),
        (
            f"{RULER}MPI_ABORT was invoked on rank 2\nwith errorcode 7.\n\nNOTE: x\n{RULER}"
            "[vm:7] 1 more process has sent help message help-mpi-api.txt / mpi-abort\n"
            '[vm:7] Set MCA parameter "orte_base_help_aggregate" to 0 to see all help / error messages\n',
            "MPI_ABORT was invoked on rank 2 with errorcode 7.",
        ),
        (BAD_END, "YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)"),
        ("no batch left\n\0", "no batch left"),
        (f"no batch left\n{RULER}", "no batch left"),
        (f"{RULER}no batch left\n====\n...\n", "no batch left"),
        (f"{RULER}{RULER}\0\n", ""),
    ],
)
def test_rulers_and_nul_bytes_are_no_words(text, told):
    assert last_words.find_last_words(text) == told


def test_a_launcher_is_quoted_by_a_whole_sentence(tmp_path):
    log = tmp_path / "mpirun.log"
    log.write_text(f"{RULER}{EXITED}{RULER}\0\n")
    assert read_words(str(log)).endswith("on node node-1 exiting improperly")
    log.write_text("/bin/bash: line 1: hydra_pmi_proxy: No such file or directory\nmpiexec was killed\n")
    assert read_words(str(log)) == "/bin/bash: line 1: hydra_pmi_proxy: No such file or directory"
    log.write_text(BAD_END)
    assert read_words(str(log)) == "BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES EXIT CODE: 9"
    log.write_text("\0\n")
    assert read_words(str(log)) == ""


def test_a_launcher_is_quoted_without_its_warnings(tmp_path):
    log = tmp_path / "mpirun.log"
    warning = "[vm:21428] plm:rsh: Warning: setpgid(21438,21438) failed in parent with errno=Permission denied(13)\n"
    line = "-" * 40 + "\n"
    log.write_text(f"{warning}{line}mpirun has exited due to process rank 2 with PID 0\n{line}")
    assert read_words(str(log)) == "mpirun has exited due to process rank 2 with PID 0"
    log.write_text(warning)
    assert read_words(str(log)) == warning.strip()


@pytest.mark.parametrize(
    "log",
    [
        "(a pid=" + "1" * 32_000,
        ("Error in " + ":" * 990 + "\n") * 200,
        ("Error:\n" + " " * 990 + "x\n") * 200,
        "  Traceback (most recent call last):\n" * 4000,
        "+ Exception Group Traceback (most recent call last):\n  | \n" * 3000,
    ],
)
def test_no_log_takes_long_to_read(log):
    before = time.thread_time()
    last_words.find_traceback(log)
    last_words.find_last_words(log)
    last_words.find_report(log, "")
    assert time.thread_time() - before < 2.0


def test_an_error_of_r_is_told_with_the_line_after_its_colon():
    ends = "Calls: f -> stop\nExecution halted\n"
    assert (
        last_words.find_report(f"Error in f(1) : no data: a\n{ends}", "").said == "Error in f(1) : no data: a"
    )
    assert last_words.find_report(f"Error in f(1) :\n  no data\n{ends}", "").said == "Error in f(1) : no data"
    assert last_words.find_report(f"Error: no data\n{ends}", "").said == "Error: no data"
