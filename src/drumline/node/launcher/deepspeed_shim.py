"""
The program that runs in the place of DeepSpeed's launcher, on the node where the command of the job is a launcher.

It runs the real ``deepspeed`` with the nodes of the job: the file of hosts and the address of node 0, unless its
options say otherwise. DeepSpeed's autotuner starts each of its experiments as another ``deepspeed``, so those come here
too, and the agent is told of each; and so does the training after them (``finish_tuning``). The autotuner's results are
kept with the job's outputs, and its fixed waits between experiments are made short (``hook/sitecustomize.py``).

Run as a file by the agent's own Python, without the package (``python -I -S deepspeed_shim.py SOCKET WORD...``).
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from socket import socket
    from typing import Any, NoReturn

_FLAGS = frozenset(
    {
        "-h",
        "--help",
        "--module",
        "--no_python",
        "--no_local_rank",
        "--no_ssh",
        "--no_ssh_check",
        "--force_multi",
        "--save_pid",
        "--elastic_training",
        "--bind_cores_to_rank",
    }
)
"""Options of DeepSpeed's launcher that take no value. Source: deepspeed/launcher/runner.py, 0.19."""

_SHORT = {"-H": "--hostfile", "-i": "--include", "-e": "--exclude"}

RESULTS = "autotuning_results"
"""Where the autotuner writes, unless its configuration has another ``results_dir``. Source: deepspeed/autotuning."""


_NOTE = "words.json"
"""In the folder of an experiment: the words it was started with."""

_TOGETHER = "DRUMLINE_EXPERIMENT"
"""As ``ssh_shim`` has it: an experiment that fails on one node is over."""

_SHORT_WAITS = "DRUMLINE_AUTOTUNING"
"""The variable by which the autotuner's Python is told to look for the end of an experiment more often."""

_MOST_TEXT = 400
_MOST_ERRORS_BYTES = 1 << 20
_ANSWER_S = 10.0


def find_options(words: list[str]) -> dict[str, str]:
    """
    Return the launcher's own options, which come before the script.

    >>> find_options(["--num_nodes=1", "-H", "hosts", "--module", "train", "--master_port", "1"])
    {'--num_nodes': '1', '--hostfile': 'hosts', '--module': ''}
    >>> find_options(["-Hhosts", "--autotuning", "run", "train.py"])
    {'--hostfile': 'hosts', '--autotuning': 'run'}
    """
    found = {}
    rest = iter(words)
    for word in rest:
        if not word.startswith("-") or word == "--":
            break
        if word[:2] in _SHORT and word[2:]:
            found[_SHORT[word[:2]]] = word[2:].removeprefix("=")
            continue
        name, has_value, value = word.partition("=")
        if not has_value and name not in _FLAGS:
            value = next(rest, "")
        found[_SHORT.get(name, name)] = value
    return found


def add_nodes(words: list[str], environ: Mapping[str, str]) -> list[str]:
    """
    Return the words with the nodes of the job, for those that name none.

    >>> job = {"DRUMLINE_HOSTFILE": "/hosts", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "20001"}
    >>> add_nodes(["--num_gpus", "2", "train.py"], job)[:6]
    ['--hostfile', '/hosts', '--master_addr', '10.0.0.1', '--master_port', '20001']
    >>> add_nodes(["--hostfile", "mine", "train.py"], job)
    ['--hostfile', 'mine', 'train.py']
    """
    hosts, options = environ.get("DRUMLINE_HOSTFILE", ""), find_options(words)
    chosen = options.get("--include", "") + options.get("--exclude", "")
    if not hosts or options.get("--hostfile", hosts) != hosts or "localhost" in chosen:
        return words
    own = {
        "--hostfile": hosts,
        "--master_addr": environ.get("MASTER_ADDR", ""),
        "--master_port": environ.get("MASTER_PORT", ""),
    }
    added = [word for name, value in own.items() if value and name not in options for word in (name, value)]
    return added + words


def keep_results(words: list[str]) -> None:
    """
    Have the autotuner's results written beneath ``outputs``, which stays when the working folder goes.

    Results of a tuning before are removed, as DeepSpeed does with a folder unless ``overwrite`` is off: with them it
    would leave out experiments of the same names, also those that were cut off, and train with their words.
    """
    kept = os.path.join("outputs", RESULTS)
    if os.path.isdir("outputs") and not os.path.lexists(RESULTS):
        os.makedirs(kept, exist_ok=True)
        os.symlink(kept, RESULTS)
    if os.path.islink(RESULTS) and os.readlink(RESULTS) == kept and _overwrites(words):
        from shutil import rmtree

        rmtree(kept, ignore_errors=True)
        os.makedirs(kept, exist_ok=True)


def _overwrites(words: list[str]) -> bool:
    """Return whether the configuration that the words name lets results be removed; its default is that it does."""
    from json import load

    for name in ("--deepspeed_config", "--deepspeed"):
        path = words[words.index(name) + 1] if name in words[:-1] else ""
        try:
            with open(path) as file:
                return bool(load(file)["autotuning"].get("overwrite", True))
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            continue
    return True


def finish_tuning(words: list[str]) -> list[str]:
    """
    Return the words to train with, where they are those of the best experiment, started once more to train.

    With the autotuner's part in its configuration it would measure a few steps again and end, and DeepSpeed has split
    its words at blanks. They are noted when the experiment is started; it is not started again for its measurements.
    Source: deepspeed/autotuning/autotuner.py, ``run_after_tuning``, 0.19.
    """
    config = _find_config(words)[1]
    section = config.pop("autotuning", None)
    measured = str(section.get("metric_path") or "") if isinstance(section, dict) else ""
    if not measured:
        return words
    from base64 import urlsafe_b64encode
    from json import dumps, load

    note = os.path.join(os.path.dirname(measured), _NOTE)
    try:
        if not os.path.exists(measured):
            with open(note, "w") as file:
                file.write(dumps(words))
            return words
        with open(note) as file:
            words = load(file)
    except (OSError, ValueError):
        return words
    words[_find_config(words)[0]] = urlsafe_b64encode(dumps(config).encode()).decode()
    return words


def _find_config(words: list[str]) -> tuple[int, dict[str, Any]]:
    """Return the place of the configuration that the autotuner has written into the words, and the configuration."""
    for name in ("--deepspeed_config", "--deepspeed"):
        place = words.index(name) + 1 if name in words else len(words)
        if place < len(words) and words[place].startswith("eyJ"):  # {" in base64
            from base64 import urlsafe_b64decode
            from json import loads

            try:
                config = loads(urlsafe_b64decode(words[place]))
            except ValueError:
                continue
            if isinstance(config, dict):
                return place, config
    return -1, {}


def find_experiment(words: list[str]) -> str:
    """Return the folder of the experiment that these words begin; empty: they begin none, or one that is over."""
    section = _find_config(words)[1].get("autotuning")
    measured = str(section.get("metric_path") or "") if isinstance(section, dict) else ""
    return "" if os.path.exists(measured) else os.path.dirname(measured)


def run_experiment(launcher_socket: str, folder: str, words: list[str]) -> NoReturn:
    """Run the real program as an experiment of the autotuner, tell the agent of both its ends, and end as it does."""
    from signal import SIG_BLOCK, SIG_UNBLOCK, SIGHUP, SIGINT, SIGTERM, pthread_sigmask, signal

    path, name = find_real_program(), os.path.basename(folder)
    os.environ[_TOGETHER] = "1"
    told = _tell(None, launcher_socket, name, _find_number(folder), "", "")
    forwarded = (SIGHUP, SIGINT, SIGTERM)
    pthread_sigmask(SIG_BLOCK, forwarded)
    pid = os.posix_spawn(path, ["deepspeed", *words], os.environ, setsigmask=())
    for number in forwarded:
        signal(number, lambda number, _: os.kill(pid, number))
    pthread_sigmask(SIG_UNBLOCK, forwarded)
    how = os.waitpid(pid, 0)[1]
    code = os.WEXITSTATUS(how) if os.WIFEXITED(how) else 128 + os.WTERMSIG(how)
    status, reason = judge(folder, code)
    _tell(told, launcher_socket, name, _find_number(folder), status, reason)
    sys.exit(code)


def judge(folder: str, code: int) -> tuple[str, str]:
    """
    Return the status of an experiment that has ended, and in a few words its result, or the cause of its failure.

    It is DeepSpeed's own judgement, which may be harsher than the exit code: an experiment has failed if "error" is
    anywhere in what it wrote to stderr. Source: deepspeed/autotuning/utils.py (``search_error``), 0.19.
    """
    try:
        with open(os.path.join(folder, "stderr.log"), "rb") as file:
            errors = file.read(_MOST_ERRORS_BYTES).decode("utf-8", "replace").splitlines()
    except OSError:
        errors = []
    named = [line for line in errors if any(word in line for word in ("Error", "error", "ERROR"))]
    raised = find_exception(errors)
    has_result = any(os.path.exists(os.path.join(folder, one)) for one in ("metrics.json", "model_info.json"))
    if code == 0 and has_result and not named:
        return "Completed", ""
    line = f": {named[0].strip()}" if named else ""
    if raised and (code or not has_result):
        reason = raised
    elif code:
        reason = f"its launcher ended with exit code {code}{line}"
    elif has_result:
        reason = f"it ran, but DeepSpeed takes a line of its stderr for a failure{line}"
    else:
        reason = f"it ended without measurements{line or ': it may have made too few steps'}"
    return "Failed", reason


def find_exception(lines: list[str]) -> str:
    """
    Return the exception that ended the first whole traceback, and the host that it is of; empty: there is none.

    >>> find_exception(["h1: [rank3]: Traceback (most recent call last):", "h1: [rank3]:   File", "h1: [rank3]: E: no"])
    'E: no (rank 3 on h1)'
    """
    import re

    label, text = r"^(?:(\S+): )?(?:\[rank(\d+)\]: ?)?", "\n".join(lines)
    for begin in re.finditer(label + r"(?=Traceback \(most recent call last\):$)", text, re.MULTILINE):
        # Lines of other ranks and nodes may stand between those of a traceback; a rank that was killed has no last one.
        last = re.compile(rf"^{re.escape(begin[0])}([A-Za-z_][\w.]*(?::.*)?)$", re.MULTILINE)
        raised = last.search(text, begin.end() + len("Traceback (most recent call last):"))
        if raised:
            host, rank = begin.groups()
            who = " on ".join(name for name in (f"rank {rank}" if rank else "", host or "") if name)
            return raised[1].strip() + (f" ({who})" if who else "")
    return ""


def _find_number(folder: str) -> str:
    """Return the autotuner's number of an experiment; empty: unknown."""
    from json import load

    try:
        with open(os.path.join(folder, "exp.json"), encoding="utf-8") as file:
            number = load(file)["exp_id"]
    except (OSError, ValueError, LookupError, TypeError):
        return ""
    return str(number) if type(number) is int else ""


def _tell(told: socket | None, launcher_socket: str, *words: str) -> socket | None:
    """Tell the agent that an experiment begins, or on the same connection that it has ended. None: it is away."""
    from socket import AF_UNIX, SOCK_STREAM, socket

    is_end = told is not None
    request = "\0".join(["experiment", *(word[:_MOST_TEXT].replace("\0", " ") for word in words)])
    data = request.encode("utf-8", "surrogateescape")
    try:
        if told is None:
            told = socket(AF_UNIX, SOCK_STREAM)
            told.connect(launcher_socket)
        told.sendall(b"%010d" % len(data) + data)
        if is_end:
            told.settimeout(_ANSWER_S)
            told.recv(64)
    except OSError:
        return None
    return told


def find_real_program() -> str:
    """Return the next ``deepspeed`` on the PATH. Exits where there is none."""
    own = os.path.dirname(os.path.realpath(__file__))
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        path = os.path.join(folder, "deepspeed")
        if os.path.realpath(folder) != own and os.access(path, os.X_OK):
            return path
    sys.stderr.write("deepspeed: it is not on the PATH\n")
    sys.exit(127)


def main() -> None:
    launcher_socket, *words = sys.argv[1:]
    for name in (_SHORT_WAITS, _TOGETHER):
        os.environ.pop(name, None)
    if "--autotuning" in find_options(words):
        keep_results(words)
        os.environ[_SHORT_WAITS] = "1"
    words = finish_tuning(words)
    folder = find_experiment(words)
    words = add_nodes(words, os.environ)
    if folder:
        run_experiment(launcher_socket, folder, words)
    os.execv(find_real_program(), ["deepspeed", *words])  # noqa: S606 - what the user called


if __name__ == "__main__":
    main()
