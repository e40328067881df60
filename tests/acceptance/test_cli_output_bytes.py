"""What ranks print, byte for byte in files and pipes, and made safe for a terminal."""

import os
import pty
import subprocess
import sys

import pytest
from cli_jobs import python

STRANGE = {
    "zero bytes": b"a\0b\n",
    "not UTF-8": b"caf\xe9 \xff\xfe\n",
    "progress": b"  1%\r 50%\r100%\n",
    "windows": b"line\r\n",
    "colours": b"\x1b[31mred\x1b[0m\n",
    "cursor": b"\x1b[2J\x1b[1;1Hgone\n",
    "title": b"\x1b]0;owned\x07text\n",
    "clipboard": b"\x1b]52;c;cm0gLXJm\x1b\\text\n",
    "bidi": "a\u202eb\u2066c\n".encode(),
    "one-byte CSI": "\x9b2Jx\n".encode(),
    "blank lines": b"\n\n\n",
    "form feed and more": b"a\x0b\x0cb\x1cc\xc2\x85d\xe2\x80\xa8e\n",
}
SHOWN = {
    "zero bytes": "ab",
    "not UTF-8": "caf\ufffd \ufffd\ufffd",
    "progress": "100%",
    "windows": "line",
    "colours": "\x1b[31mred\x1b[0m",
    "cursor": "gone",
    "title": "text",
    "clipboard": "text",
    "bidi": "a<U+202E>b<U+2066>c",
    "one-byte CSI": "x",
    "form feed and more": "abcd\u2028e",
}


def printing(data):
    return python("import os", f"os.write(1, {data!r})")


def run_bytes(*arguments, cwd):
    argv = [sys.executable, "-m", "drumline", "run", *arguments]
    return subprocess.run(argv, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, timeout=60)


def run_on_a_terminal(*arguments, cwd, env=None):
    """Everything that the terminal got; stderr is no terminal."""
    ours, theirs = pty.openpty()
    argv = [sys.executable, "-m", "drumline", *arguments]
    process = subprocess.Popen(
        argv,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **(env or {})},
    )
    os.close(theirs)
    got = b""
    try:
        while data := os.read(ours, 1 << 16):
            got += data
    except OSError:  # the last process that had it open has ended
        pass
    finally:
        os.close(ours)
        assert process.wait(60) == 0
    return got.decode().replace("\r\n", "\n")


@pytest.mark.parametrize("data", STRANGE.values(), ids=STRANGE.keys())
def test_a_pipe_and_the_log_get_the_bytes_as_they_are(tmp_path, drumline_home, data):
    done = run_bytes("--name", "job", "--", *printing(data), cwd=tmp_path)
    assert data == done.stdout
    assert data == (drumline_home / "jobs" / "job" / "user_logs" / "std_log.txt").read_bytes()


@pytest.mark.parametrize("case", SHOWN)
def test_a_terminal_gets_no_control_sequences_but_colours(tmp_path, case):
    shown = run_on_a_terminal("run", "--", *printing(STRANGE[case]), cwd=tmp_path)
    assert f"{SHOWN[case]}\n" == shown


def test_a_line_of_10_mb_is_whole_on_a_pipe(tmp_path):
    done = run_bytes(
        "--procs", "2", "--", *python("import os", "os.write(1, b'x' * 10_000_000 + b'end\\n')"), cwd=tmp_path
    )
    lines = sorted(done.stdout.splitlines())
    assert [line[:11] for line in lines] == [b"[0|node-0] ", b"[1|node-0] "]
    assert {b"x" * 10_000_000 + b"end"} == {line[11:] for line in lines}


def test_a_line_of_10_mb_is_cut_on_a_terminal_and_says_so(tmp_path):
    shown = run_on_a_terminal("run", "--", *python("print('x' * 10_000_000)"), cwd=tmp_path)
    assert shown == "x" * 65536 + f" ... ({10_000_000 - 65536} bytes more)\n"


def test_a_last_line_without_its_end_is_shown(tmp_path):
    assert run_bytes("--", "printf", "a\nb", cwd=tmp_path).stdout == b"a\nb\n"


def test_stderr_and_stdout_of_a_rank_stay_in_order(tmp_path):
    done = run_bytes("--", "sh", "-c", "echo 1; echo 2 >&2; echo 3", cwd=tmp_path)
    assert done.stdout == b"1\n2\n3\n"


def test_every_line_of_several_ranks_says_whose_it_is(tmp_path):
    done = run_bytes("--nodes", "2", "--procs", "2", "--", "sh", "-c", "echo a; echo b", cwd=tmp_path)
    expected = [f"[{rank}|node-{rank // 2}] {text}" for rank in range(4) for text in "ab"]
    assert expected == sorted(done.stdout.decode().splitlines())


def test_one_rank_has_no_prefix_unless_asked_for(tmp_path):
    assert run_bytes("--", "echo", "a", cwd=tmp_path).stdout == b"a\n"
    assert run_bytes("--prefix", "--", "echo", "a", cwd=tmp_path).stdout == b"[0|node-0] a\n"


def test_no_prefix_leaves_the_lines_alone(tmp_path):
    assert run_bytes("--no-prefix", "--procs", "2", "--", "echo", "a", cwd=tmp_path).stdout == b"a\na\n"


@pytest.mark.parametrize(
    ("ranks", "shown"), [("0", [0]), ("0,2-3", [0, 2, 3]), ("1-1", [1]), (" 3 , 0 ", [0, 3])]
)
def test_only_chosen_ranks_are_shown_and_all_run(tmp_path, drumline_home, ranks, shown):
    arguments = ("--name", "job", "--nodes", "2", "--procs", "2", "--ranks", ranks, "--no-prefix")
    done = run_bytes(*arguments, "--", "sh", "-c", "echo $RANK", cwd=tmp_path)
    assert shown == sorted(map(int, done.stdout.split()))
    assert len(list((drumline_home / "jobs" / "job" / "user_logs").iterdir())) == 4


def test_parameter_servers_are_chosen_by_their_label(tmp_path):
    arguments = ("--distribution", "tensorflow", "--workers", "1", "--ps", "1", "--ranks", "ps0")
    done = run_bytes(
        *arguments,
        "--",
        "sh",
        "-c",
        "echo here; test $AZUREML_PROCESS_NAME = worker_0 || exec tail -f /dev/null",
        cwd=tmp_path,
    )
    assert done.returncode == 0
    assert {b"[ps0|node-0] here"} >= set(done.stdout.splitlines())


def test_the_name_of_a_job_cannot_write_to_a_terminal(tmp_path, cli):
    cli("run", "--name", "job", "--", "true")
    cli("job", "update", "job", "--set", "display_name=a\x1b]0;owned\x07\u202eb")
    for form in ("table", "tsv", "json", "jsonc", "yaml"):
        shown = run_on_a_terminal("job", "show", "job", "--query", "display_name", "-o", form, cwd=tmp_path)
        assert "\x1b" not in shown, form
        assert "\u202e" not in shown, form


def test_jsonc_colours_a_terminal_unless_no_color_is_set(tmp_path, cli):
    cli("run", "--name", "job", "--", "true")
    arguments = ("job", "show", "job", "-o", "jsonc")
    assert "\x1b[34m" in run_on_a_terminal(*arguments, cwd=tmp_path, env={"NO_COLOR": ""})
    assert "\x1b" not in run_on_a_terminal(*arguments, cwd=tmp_path, env={"NO_COLOR": "1"})


def test_a_terminal_gets_a_table_when_nothing_is_said(tmp_path, cli):
    cli("run", "--name", "job", "--", "true")
    assert run_on_a_terminal("job", "list", cwd=tmp_path, env={"NO_COLOR": "1"}).startswith("NAME ")
