"""``drumline sweep``: hyperparameters of a program, searched without a job file."""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import sys
from typing import TYPE_CHECKING, Any

from drumline.cli import output, variables
from drumline.cli.arguments import (
    Parser,
    add_env,
    add_variables,
    add_warm,
    add_workspace,
    enter_workspace,
    name_experiment,
    parse_variables,
)
from drumline.contract.errors import UsageError
from drumline.spec.parts.search import parse_value

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Collection, Iterator, Sequence
    from typing import NoReturn

_EXAMPLE = (
    "drumline sweep --lr 1e-4:1e-1:log --batch 32,64 --trials 8 --goal min:loss -- "
    "python train.py --lr {lr} --batch {batch}"
)
_PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}|\{([A-Za-z_]\w*)\}", re.ASCII)
_PLAIN_TEXT = re.compile(r"[\w@%+=:,./-]+", re.ASCII)
_GOALS = {"min": "minimize", "minimize": "minimize", "max": "maximize", "maximize": "maximize"}
_MOST_VALUES = 1000
_MOST_TRIALS = 1000
_SCHEMA = "https://azuremlschemas.azureedge.net/latest/sweepJob.schema.json"


def main(argv: list[str]) -> int:
    at = argv.index("--") if "--" in argv else len(argv)
    own, program = argv[:at], argv[at + 1 :]
    arguments, others = _make_parser().parse_known_args(own)
    if arguments.secret or arguments.env:
        variables.hide_values(arguments.env)
        variables.hide_typed(arguments.secret)
    if not program:
        raise UsageError("the program to run is missing; it stands after --", _EXAMPLE)
    wanted = {str(found[2]) for word in program for found in _PLACEHOLDER.finditer(word) if found[2]}
    fields = _make_fields(arguments, _read_spaces(arguments.param, others, wanted), program)
    with enter_workspace(arguments.workspace_name):
        return _run(arguments, fields)


def _make_parser() -> Parser:
    parser = Parser(
        prog="drumline sweep",
        usage="drumline sweep --NAME SPACE ... --goal min:METRIC [options] -- PROGRAM [arguments with {NAME}]",
        description="Run a program many times with different hyperparameters, and report the best trial. "
        "SPACE is LOW:HIGH, LOW:HIGH:log, LOW:HIGH:STEP, or values with commas between them.",
        epilog=_EXAMPLE,
    )
    add = parser.add_argument
    add("--goal", metavar="min:METRIC", help="min: or max:, and the metric that the program logs")
    add(
        "--trials",
        type=int,
        metavar="N",
        help="how many to run; default: every combination, where all are lists",
    )
    add("--concurrent", type=int, metavar="N", help="how many run at a time; default: as many as fit")
    add("--param", action="append", default=[], metavar="NAME=SPACE", help="as --NAME SPACE, for any name")
    add(
        "--sampling",
        choices=("random", "sobol", "grid", "bayesian"),
        help="default: random; grid without --trials",
    )
    add("--seed", type=int, metavar="N", help="of random sampling; default: made of the sweep's name")
    add(
        "--early-stop",
        metavar="POLICY",
        help="median, bandit:SLACK or truncation:PERCENT; default: no trial is",
    )
    add("--nodes", type=int, default=1, metavar="N", help="the nodes of each trial; default 1")
    add("--procs", type=int, metavar="P", help="processes on each node; default 1")
    add("--distribution", choices=("pytorch", "mpi", "plain"), default="pytorch", help="default pytorch")
    add("--timeout", type=int, metavar="S", help="the time limit of the sweep in seconds")
    add("--trial-timeout", type=int, metavar="S", help="the time limit of each trial in seconds")
    add("--compute", metavar="NAME", help="an attached compute; default: this machine")
    add(
        "--code",
        default=".",
        metavar="FOLDER",
        help="copied for each trial, which runs in it; default: this folder",
    )
    add("--name", help="the sweep's name; default: a generated one")
    add_env(parser)
    add_variables(parser)
    add_warm(parser, "DRUMLINE_WARM, else auto")
    add("-a", "--save-as", metavar="FILE", help="write the sweep as a job file too")
    add("--dry-run", action="store_true", help="print the job file, and submit nothing")
    add("-d", "--detach", action="store_true", help="print the sweep's name and return")
    add_workspace(parser)
    return parser


# The search space.


def _read_spaces(
    named: Sequence[str], others: Sequence[str], wanted: Collection[str]
) -> dict[str, dict[str, Any]]:
    """Return the search space of each hyperparameter. ``wanted``: those of the program. Raises UsageError."""
    given = {}
    for name, text in _pair_up(named, others):
        if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
            raise UsageError(f"--{name}: letters, digits and '_' make the name of a hyperparameter", _EXAMPLE)
        if name not in wanted:
            _refuse(name, wanted)
        if name in given:
            raise UsageError(f"--{name} is given twice")
        given[name] = _parse_space(name, text)
    return given


def _refuse(name: str, wanted: Collection[str]) -> NoReturn:
    """Raise UsageError for an option that is none, nor a hyperparameter of the program."""
    import difflib

    options = [word for word in _make_parser()._option_string_actions if word.startswith("--")]
    known = [*(f"--{one}" for one in sorted(wanted)), *options]
    close = difflib.get_close_matches(f"--{name}", known, n=1, cutoff=0.7)
    hint = (
        f"did you mean {close[0]}?" if close else f"write {{{name}}} where its value belongs in the program"
    )
    raise UsageError(
        f"--{name} is neither an option nor a hyperparameter: the program has no {{{name}}}", hint
    )


def _pair_up(named: Sequence[str], others: Sequence[str]) -> Iterator[tuple[str, str]]:
    for word in named:
        name, equals, text = word.partition("=")
        if not equals:
            raise UsageError(f"--param: {word!r} is not of the form NAME=SPACE", "--param lr=1e-4:1e-1:log")
        yield name, text
    words = list(others)
    while words:
        word = words.pop(0)
        option, equals, text = word.partition("=")
        if not option.startswith("--") or option == "--":
            raise UsageError(f"unrecognized argument: {word}", f"the program stands after --: {_EXAMPLE}")
        if not equals:
            if not words or words[0].startswith("--"):
                raise UsageError(
                    f"{option}: its search space is missing", f"{option} 1e-4:1e-1:log, {option} 16,32"
                )
            text = words.pop(0)
        yield option[2:].replace("-", "_"), text


def _parse_space(name: str, text: str) -> dict[str, Any]:
    """Return the search space that a text stands for, as a job file has it. Raises UsageError."""
    if "," in text:
        return {"type": "choice", "values": [parse_value(one) for one in text.split(",")]}
    parts = text.split(":")
    bounds = [parse_value(part) for part in parts[:2]]
    low, high = bounds if len(bounds) == 2 else ("", "")
    if len(parts) > 3 or isinstance(low, str) or isinstance(high, str):
        what = f"--{name}: {text!r} is no search space"
        raise UsageError(
            what, f"--{name} LOW:HIGH, LOW:HIGH:log, LOW:HIGH:STEP, or values as in --{name} 16,32"
        )
    if not low < high or math.inf in (abs(low), abs(high)):
        raise UsageError(
            f"--{name}: {text!r} has no number between its bounds", "the lower bound stands first"
        )
    is_whole = isinstance(low, int) and isinstance(high, int)
    last = parts[2] if len(parts) == 3 else ""
    if last == "log" and low <= 0:
        raise UsageError(f"--{name}: {text!r}: a logarithmic scale begins above 0")
    if last == "log":
        kind, more = ("qloguniform", {"q": 1}) if is_whole else ("loguniform", {})
        return {"type": kind, "min_value": math.log(low), "max_value": math.log(high), **more}
    if not last and not is_whole:
        return {"type": "uniform", "min_value": low, "max_value": high}
    step = parse_value(last) if last else 1
    if isinstance(step, str) or step <= 0:
        what = f"--{name}: {text!r}: the third part is 'log' or a step above 0"
        raise UsageError(what, f"--{name} {parts[0]}:{parts[1]}:log")
    count = math.floor((high - low) / step * (1 + 1e-12)) + 1
    if count > _MOST_VALUES:
        if last:
            raise UsageError(f"--{name}: {text!r} has {count:,} values", f"at most {_MOST_VALUES:,}")
        return {"type": "quniform", "min_value": low, "max_value": high, "q": 1}
    values = [low + index * step for index in range(count)]
    return {
        "type": "choice",
        "values": [one if isinstance(one, int) else float(f"{one:.12g}") for one in values],
    }


# The job.


def _make_fields(
    arguments: Namespace, spaces: dict[str, dict[str, Any]], program: Sequence[str]
) -> dict[str, Any]:
    """Return the sweep as a job file has it. Raises UsageError."""
    command = " ".join(_make_word(word, spaces) for word in program)
    if not spaces:
        raise UsageError("no hyperparameter is given", _EXAMPLE)
    for option in ("trials", "concurrent", "nodes", "procs", "timeout", "trial_timeout"):
        value = getattr(arguments, option)
        if value is not None and value < 1:
            raise UsageError(f"--{option.replace('_', '-')} must be at least 1; got {value}")
    if arguments.distribution == "plain" and arguments.procs is not None:
        raise UsageError("--procs needs --distribution pytorch or mpi; got plain")
    trial = {
        "code": arguments.code,
        "command": command,
        "environment_variables": parse_variables(arguments.env),
        "distribution": None
        if arguments.distribution == "plain"
        else {"type": arguments.distribution, "process_count_per_instance": arguments.procs or 1},
        "resources": {"instance_count": arguments.nodes},
        "drumline": {"warm": arguments.warm} if arguments.warm else {},
    }
    total, sampling = _choose_sampling(arguments, spaces)
    how, _, metric = (arguments.goal or "").partition(":")
    if how not in _GOALS or not metric:
        what = f"--goal: {arguments.goal!r} is not min:METRIC or max:METRIC"
        hint = "--goal min:loss, with the name of a metric that the program logs"
        raise UsageError(what if arguments.goal else "--goal is missing", hint)
    limits = {
        "max_total_trials": total,
        "max_concurrent_trials": arguments.concurrent,
        "timeout": arguments.timeout,
        "trial_timeout": arguments.trial_timeout,
    }
    fields = {
        "$schema": _SCHEMA,
        "type": "sweep",
        "name": arguments.name,
        "trial": _without_empty(trial),
        "search_space": spaces,
        "sampling_algorithm": sampling,
        "objective": {"goal": _GOALS[how], "primary_metric": metric},
        "early_termination": _parse_policy(arguments.early_stop),
        "limits": _without_empty(limits),
    }
    if arguments.compute is not None:
        from drumline.control.machine import computes

        fields["compute"] = computes.refer_to(arguments.compute)
    return _without_empty(fields)


def _without_empty(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value not in (None, "", {})}


def _make_word(word: str, spaces: dict[str, dict[str, Any]]) -> str:
    """Return a word of the program in which hyperparameters stand as job files write them. Raises UsageError."""
    parts: list[str] = []
    end = 0
    for found in _PLACEHOLDER.finditer(word):
        literal, name = found.groups()
        before = word[end : found.start()] + (f"{{{literal}}}" if literal else "")
        parts += [shlex.quote(before)] if before else []
        end = found.end()
        if not name:
            continue
        if name not in spaces:
            hint = f"--{name} LOW:HIGH or --{name} A,B; write {{{{{name}}}}} for the text {{{name}}} itself"
            raise UsageError(f"the program has {{{name}}}, and no --{name} says what to try", hint)
        texts = [value for value in spaces[name].get("values", ()) if isinstance(value, str)]
        if any("'" in text for text in texts):
            raise UsageError(f"--{name}: a value cannot have a single quote in it")
        # A value takes its place before a shell reads the command.
        placeholder = f"${{{{search_space.{name}}}}}"
        parts.append(placeholder if all(map(_PLAIN_TEXT.fullmatch, texts)) else f"'{placeholder}'")
    if end < len(word) or not word:
        parts.append(shlex.quote(word[end:]))
    return "".join(parts)


def _choose_sampling(arguments: Namespace, spaces: dict[str, dict[str, Any]]) -> tuple[int, Any]:
    """Return how many trials there are at most, and how they are chosen. Raises UsageError."""
    is_list = all(space["type"] == "choice" for space in spaces.values())
    count = math.prod(len(space["values"]) for space in spaces.values()) if is_list else 0
    kind = arguments.sampling or ("grid" if is_list and arguments.trials is None else "random")
    total = arguments.trials or (min(count, _MOST_TRIALS) if kind == "grid" else 0)
    if not total:
        raise UsageError("--trials is missing: a range has no last value", "--trials 20")
    if kind == "grid" and not is_list:
        ranges = next(name for name, space in spaces.items() if space["type"] != "choice")
        raise UsageError(
            f"--sampling grid: --{ranges} is a range", "give its values, or a step as in 0:1:0.1"
        )
    if arguments.seed is not None and kind not in ("random", "sobol"):
        raise UsageError(f"--seed has no effect with --sampling {kind}", "leave it out")
    if kind in ("grid", "bayesian"):
        return total, kind
    detail = _without_empty({"seed": arguments.seed, "rule": "sobol" if kind == "sobol" else None})
    return total, {"type": "random", **detail} if detail else "random"


def _parse_policy(text: str | None) -> dict[str, Any] | None:
    name, colon, number = (text or "").partition(":")
    if not name:
        return None
    if name == "median" and not colon:
        return {"type": "median_stopping"}
    value = parse_value(number)
    if name == "bandit" and isinstance(value, (int, float)) and value > 0:
        return {"type": "bandit", "slack_factor": value}
    if name == "truncation" and isinstance(value, int) and 0 < value < 100:
        return {"type": "truncation_selection", "truncation_percentage": value}
    raise UsageError(f"--early-stop: {text!r} is no policy", "median, bandit:0.1 or truncation:20")


def _run(arguments: Namespace, fields: dict[str, Any]) -> int:
    from io import BytesIO

    from drumline.spec.load import load_job

    job: Any = load_job(BytesIO(json.dumps(fields).encode()), relative_origin=os.getcwd())
    if arguments.env_file or arguments.secret:
        variables.set_variables(job, arguments)
    if arguments.dry_run:
        print(job, end="")
        return 0
    from drumline.control.submission.submit import submit

    name_experiment(job)
    submitted = submit(job)
    output.print_warnings(submitted.warnings)
    if arguments.save_as:
        job.dump(arguments.save_as, overwrite=True)
    if arguments.detach:
        print(submitted.name)
        return 0
    from drumline.cli.jobs.following import follow_job

    return follow_job(submitted.name, sys.stdout)
