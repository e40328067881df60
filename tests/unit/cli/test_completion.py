"""What completes a command line: the words, their names, and real shells that ask for them."""

import os
import pty
import resource
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from drumline.cli.guide import completion
from drumline.cli.guide.completion import read_parser
from drumline.cli.main import COMMANDS, list_modules

MODULES = list_modules()


def answer_to(*words, shell="fish"):
    kind, *lines = completion.complete([shell, *words], COMMANDS, MODULES).splitlines()
    return kind, [line.partition("\t")[0] for line in lines]


def words_after(*words, **more):
    kind, found = answer_to(*words, **more)
    assert kind == "words"
    return found


@pytest.fixture
def home(drumline_home):
    for name in ("calm_drum", "calm_gong", "loud_bell"):
        (drumline_home / "jobs" / name).mkdir(parents=True)
    (drumline_home / "jobs" / "bad name;rm").mkdir()
    (drumline_home / "computes").mkdir()
    (drumline_home / "computes" / "gpu-cluster.yml").write_text("")
    (drumline_home / "workspaces" / "vision" / "jobs" / "far_bell").mkdir(parents=True)
    asset = drumline_home / "assets" / "data" / "digits"
    (asset / "labels").mkdir(parents=True)
    for version in ("1", "2"):
        (asset / f"{version}.yml").write_text("created_at: 2026-01-01T00:00:00.000000Z\n")
    (asset / "labels" / "best").write_text("1")
    return drumline_home


def test_commands_and_verbs():
    assert {*COMMANDS, "help"} == set(words_after(""))
    assert words_after("jo") == ["job"]
    assert "create" in words_after("job", "")
    assert words_after("job", "cre") == ["create"]
    assert words_after("help", "job", "cre") == ["create"]
    assert words_after("help", "conf") == ["configure"]
    assert words_after("nonsense", "") == []


def test_options_and_their_values():
    assert "--stream" in words_after("job", "create", "--")
    assert words_after("job", "create", "--stre") == ["--stream"]
    assert words_after("job", "create", "-o", "js") == ["json", "jsonc"]
    assert words_after("job", "create", "--output=js") == ["--output=json", "--output=jsonc"]
    assert words_after("run", "--distribution", "p") == ["pytorch", "plain"]
    assert "--nodes" in words_after("run", "--no")
    assert "--shape" not in words_after("run", "--")


def test_options_of_az_are_not_offered():
    assert "--resource-group" not in words_after("job", "list", "--")


def test_files_and_programs_are_the_shells():
    assert answer_to("job", "create", "-f", "")[0] == "files"
    assert answer_to("job", "create", "--file=")[0] == "files"
    assert answer_to("run", "--nodes", "2", "--", "")[0] == "programs"
    assert answer_to("run", "pyth")[0] == "programs"
    assert answer_to("run", "--", "python", "tr")[0] == "files"
    assert answer_to("run", "--", "python", "--nod")[0] == "files"


def test_names(home):
    assert sorted(words_after("job", "show", "")) == ["calm_drum", "calm_gong", "loud_bell"]
    assert words_after("job", "show", "-n", "lo") == ["loud_bell"]
    assert words_after("job", "cancel", "--name=lo") == ["--name=loud_bell"]
    assert words_after("job", "create", "-n", "") == []
    assert words_after("run", "--name", "") == []
    assert words_after("run", "--compute", "g") == ["gpu-cluster"]
    assert words_after("compute", "show", "") == ["local", "gpu-cluster"]
    assert words_after("job", "list", "-w", "") == ["vision"]
    assert words_after("job", "show", "-w", "vision", "") == ["far_bell"]
    assert words_after("data", "show", "") == ["digits"]
    assert sorted(words_after("data", "show", "digits", "--version", "")) == ["1", "2"]
    assert words_after("data", "show", "digits", "--label", "b") == ["best"]
    assert words_after("workspace", "show", "") == ["vision"]


def test_variables_and_experiments(cli, monkeypatch):
    monkeypatch.setenv("SOME_VARIABLE_HERE", "1")
    assert words_after("run", "--env", "SOME_VARIABLE_H") == ["SOME_VARIABLE_HERE"]
    assert words_after("job", "list", "--experiment", "") == []
    assert cli("run", "--name", "calm", "--", "true").rc == 0
    assert cli("job", "list").rc == 0
    assert words_after("job", "list", "--experiment", "") != []


def test_a_broken_home_completes_nothing(monkeypatch):
    monkeypatch.setenv("DRUMLINE_HOME", "/dev/null/home")
    assert words_after("job", "show", "") == []
    monkeypatch.setenv("DRUMLINE_WORKSPACE", "../x")
    assert words_after("job", "show", "") == []


def test_bash_takes_words_apart(home):
    assert words_after("run", "--compute", "=", "g", shell="bash") == ["gpu-cluster"]
    assert words_after("run", "--compute", "=", shell="bash") == ["local", "gpu-cluster"]
    assert words_after("run", "--env", "A", "=", "1", "--compu", shell="bash") == ["--compute"]


def test_every_verb_completes():
    """No command's parser needs more than what completion gives it."""
    for noun in COMMANDS:
        kind, found = answer_to(noun, "")
        verbs = [word for word in found if not word.startswith("-")] if kind == "words" else []
        for verb in verbs:
            is_refused = read_parser(MODULES[noun], verb) is None
            assert is_refused or noun == "completion" or "--help" in words_after(noun, verb, "--"), (
                noun,
                verb,
            )
        if not verbs:
            assert "--help" in words_after(noun, "--"), noun


MOST_STARTS = 8


def test_an_answer_comes_at_once(home):
    """In as much CPU time as so many starts of Python: machines differ, and have other work."""
    python = str(Path(sys.executable))
    answer = [str(Path(python).with_name("drumline")), "__complete", "bash", "job", "show", ""]
    starts, answers = [], []
    for _ in range(5):
        starts.append(measure_cpu([python, "-c", ""]))
        answers.append(measure_cpu(answer))
    assert min(answers) < MOST_STARTS * min(starts)


def measure_cpu(argv):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(argv, check=True, capture_output=True, stdin=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


# real shells

SET_UP = {
    "bash": (
        ["bash", "--norc", "--noprofile", "-i"],
        'bind "set enable-bracketed-paste off"; eval "$(drumline completion bash)"',
    ),
    "zsh": (["zsh", "-f", "-i"], "autoload -Uz compinit; compinit -D -u; source <(drumline completion zsh)"),
    "fish": (["fish", "--no-config", "-i"], "drumline completion fish | source"),
}


class Terminal:
    """A shell on a terminal of its own, which reads what is typed."""

    def __init__(self, argv, env, cwd):
        self.said = b""
        self.pid, self.descriptor = pty.fork()
        if self.pid == 0:
            os.chdir(cwd)
            os.execvpe(argv[0], argv, env)

    def type(self, text):
        os.write(self.descriptor, text.encode())

    def wait_for(self, text):
        """Read until ``text`` comes; what came before it is forgotten."""
        until = time.monotonic() + 10
        while text.encode() not in self.said:
            ready, _, _ = select.select([self.descriptor], [], [], max(0, until - time.monotonic()))
            assert ready, f"no {text!r} in {self.said[-2000:]!r}"
            said = os.read(self.descriptor, 65536)
            self.said += said
            # A terminal answers a shell that asks what it is.
            if b"\x1b[c" in said or b"\x1b[0c" in said:
                self.type("\x1b[?62;c")
            if b"\x1b[6n" in said:
                self.type("\x1b[1;1R")
        self.said = self.said.partition(text.encode())[2]

    def close(self):
        os.close(self.descriptor)
        os.waitpid(self.pid, 0)


@pytest.mark.parametrize("shell", SET_UP)
def test_a_real_shell_completes(shell, home, tmp_path):
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell} here: scripts/setup test installs it where it may")
    argv, set_up = SET_UP[shell]
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "myjob.yml").write_text("")
    env = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "TERM": "dumb" if shell != "fish" else "xterm",
        "PS1": "> ",
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path),
        "LC_ALL": "C.UTF-8",
    }
    terminal = Terminal(argv, env, folder)
    try:
        terminal.type(f"{set_up}; echo rea''dy\n")
        terminal.wait_for("ready")
        for typed, completed in (
            ("job arch", "archive"),
            ("job show lo", "loud_bell"),
            ("run --compute gp", "gpu-cluster"),
            ("job create -f my", "myjob.yml"),
            ("job create -o yamlc --stre", "--stream"),
        ):
            terminal.type(f"\x15drumline {typed}\t")
            terminal.wait_for(completed)
        terminal.type("\x15exit\n")
    finally:
        terminal.close()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_valid(shell, cli):
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell} here: scripts/setup test installs it where it may")
    script = cli("completion", shell)
    assert script.rc == 0
    done = subprocess.run([shell, "-n"], input=script.out, text=True, capture_output=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_no_other_shell(cli):
    done = cli("completion", "tcsh")
    assert done.rc == 2
    assert "tcsh" in done.err
