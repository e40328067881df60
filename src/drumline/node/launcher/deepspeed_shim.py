"""
The program that runs in the place of DeepSpeed's launcher, on the node where the command of the job is a launcher.

It runs the real ``deepspeed`` with the nodes of the job: the file of hosts and the address of node 0, unless its
options say otherwise. DeepSpeed's autotuner starts each of its experiments as another ``deepspeed``, so those come here
too, and so does the training after them (``finish_tuning``); its results are kept with the job's outputs.

Run as a file by the agent's own Python, without the package (``python -I -S deepspeed_shim.py WORD...``).
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
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


def find_options(words: list[str]) -> dict[str, str]:
    """
    Return the launcher's own options, which come before the script.

    >>> find_options(["--num_nodes=1", "-H", "hosts", "--module", "train", "--master_port", "1"])
    {'--num_nodes': '1', '--hostfile': 'hosts', '--module': ''}
    """
    found = {}
    rest = iter(words)
    for word in rest:
        if not word.startswith("-") or word == "--":
            break
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


def keep_results() -> None:
    """Have the autotuner's results written beneath ``outputs``, which stays when the working folder goes."""
    if os.path.isdir("outputs") and not os.path.lexists(RESULTS):
        os.makedirs(os.path.join("outputs", RESULTS), exist_ok=True)
        os.symlink(os.path.join("outputs", RESULTS), RESULTS)


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


def run_real_program(words: list[str]) -> NoReturn:
    """Execute the next ``deepspeed`` on the PATH."""
    own = os.path.dirname(os.path.realpath(__file__))
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        path = os.path.join(folder, "deepspeed")
        if os.path.realpath(folder) != own and os.access(path, os.X_OK):
            os.execv(path, ["deepspeed", *words])  # noqa: S606 - what the user called
    sys.stderr.write("deepspeed: it is not on the PATH\n")
    sys.exit(127)


def main() -> None:
    words = sys.argv[1:]
    if "--autotuning" in find_options(words):
        keep_results()
    run_real_program(add_nodes(finish_tuning(words), os.environ))


if __name__ == "__main__":
    main()
