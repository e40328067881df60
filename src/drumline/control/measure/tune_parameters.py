"""The parameters that ``drumline tune --over`` names: what each sets in a job, and the values that are tried."""

from __future__ import annotations

import itertools
import math
import re
import unicodedata
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import UsageError
from drumline.contract.record import NamedTuple
from drumline.contract.steps import DETAIL
from drumline.contract.words import format_count
from drumline.control.driver.tune_trials import SWITCHES
from drumline.node.warm.ranks import is_rank_variable
from drumline.plan.environment import UNSET
from drumline.plan.search.sweep_request import describe_refusal
from drumline.plan.search.tuning import (
    ENV,
    INPUT,
    KNOWN_NAMES,
    PROCS,
    describe_setting,
    find_target,
    list_literals,
    read_current,
    to_number,
)
from drumline.spec.parts.search import parse_value

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_SETTINGS = 200
_THREADS = "OMP_NUM_THREADS"
_LEAST = {PROCS: 1, "threads": 1, "workers": 0, "batch": 1, "buckets": 1}
_USUAL_BUCKETS = (10, 25, 50, 100)
"""MB; PyTorch's own is 25."""

_MOST_WORKERS = 8
_EXAMPLE = "--over procs=1|2|4,threads,env:NAME=a|b"


class NodeRoom(NamedTuple):
    """What a node of the job has; None: not known from here. ``cores`` are shared fairly among nodes of one machine."""

    cores: int | None
    gpus: int = 0


class Parameter(NamedTuple):
    """``target``: as of ``Tuning``. ``is_ours``: its values were not given, but chosen here."""

    name: str
    target: str
    values: tuple[Any, ...]
    is_ours: bool = False


def list_parameters(words: Sequence[str], job: Any, site: NodeRoom) -> list[Parameter]:
    """Return the parameters of ``--over``, or the usual ones where it is not given. Raises UsageError."""
    parts = [part.strip() for word in words for part in word.split(",")]
    if not words:
        parts = [PROCS, "threads"] if _has_procs(job) else ["threads"]
    found = [_read_parameter(part, job, site) for part in parts]
    targets = [one.target for one in found]
    twice = next((one.name for one in found if targets.count(one.target) > 1), None)
    if twice is not None:
        raise UsageError(f"--over: {twice!r} is set twice", "name each setting once, with all of its values")
    return found


def list_settings(parameters: Sequence[Parameter], job: Any, site: NodeRoom) -> list[tuple[Any, ...]]:
    """Return the combinations of all values, without those that have more threads than cores where we chose them."""
    count = math.prod(len(one.values) for one in parameters)
    if count > 50 * MOST_SETTINGS:
        raise _refuse_count(count)
    names = [one.name for one in parameters]
    ours = "threads" in names and parameters[names.index("threads")].is_ours
    usual = getattr(job.distribution, "process_count_per_instance", None) or 1
    kept = []
    for values in itertools.product(*(one.values for one in parameters)):
        given = dict(zip(names, values, strict=True))
        threads = given.get("threads", 1)
        if ours and threads > 1 and threads * given.get(PROCS, usual) > (site.cores or math.inf):
            continue
        kept.append(values)
    if len(kept) > MOST_SETTINGS:
        raise _refuse_count(len(kept))
    if len(kept) == 1:
        why = _explain_one(parameters, job, site)
        shown = describe_setting(dict(zip(names, kept[0], strict=True)))
        raise UsageError(
            f"--over: there is only one setting to try, {shown}: {why}",
            f"name two values or more: --over '{names[0]}=1|2'",
        )
    return kept


def _explain_one(parameters: Sequence[Parameter], job: Any, site: NodeRoom) -> str:
    ours = [one.name for one in parameters if one.is_ours and one.name in (PROCS, "threads")]
    if not ours or site.cores is None:
        return "each has one value"
    cores = format_count(site.cores, "core")
    gpus = f"{format_count(site.gpus, 'GPU')} and " if site.gpus and PROCS in ours else ""
    count = getattr(job.distribution, "process_count_per_instance", None) or 1
    processes = "" if PROCS in ours or count == 1 else f" for {count} processes"
    return f"a node of this job has {gpus}{cores}{processes}"


def find_own(parameters: Sequence[Parameter], settings: Sequence[tuple[Any, ...]], job: Any) -> int | None:
    """Return the number of the setting that the job file has; None if it does not state one, or it is not tried."""
    own = [read_current(one.target, job) for one in parameters]
    if None in own:
        return None
    return next((number for number, values in enumerate(settings) if all(map(_are_same, values, own))), None)


def find_edges(parameters: Sequence[Parameter], site: NodeRoom) -> dict[str, tuple[Any, Any]]:
    """Return the ends of those values that are numbers, as ``Tuning`` has them."""
    edges = {}
    for one in parameters:
        numbers = {value: to_number(value) for value in one.values}
        known = {value: number for value, number in numbers.items() if number is not None}
        # Nothing is beyond a switch.
        if len(set(known.values())) < 2 or len(known) < len(numbers) or set(known.values()) == {0.0, 1.0}:
            continue
        smallest, largest = min(known, key=known.__getitem__), max(known, key=known.__getitem__)
        least = _LEAST.get(one.name, -math.inf)
        most = _find_most(one.name, site)
        is_whole = one.is_ours and one.name == PROCS
        edges[one.name] = (
            smallest if known[smallest] > least else None,
            largest if known[largest] < most and not is_whole else None,
        )
    return edges


def _find_most(name: str, site: NodeRoom) -> float:
    """Return what a node has room for: a process for each GPU, where there are some."""
    known = (site.gpus or site.cores) if name == PROCS else site.cores if name == "threads" else None
    return known or math.inf


def _are_same(one: Any, other: Any) -> bool:
    number = to_number(one)
    return str(one) == str(other) or (number is not None and number == to_number(other))


def _refuse_count(count: int) -> UsageError:
    return UsageError(
        f"--over: {count:,} combinations, and {MOST_SETTINGS} are the most", "fewer values: procs=1|4"
    )


def _read_parameter(text: str, job: Any, site: NodeRoom) -> Parameter:
    name, equals, listed = text.partition("=")
    name = name.strip()
    target = _target_of(name, job)
    if not equals:
        return Parameter(name, target, _choose_values(name, target, job, site), is_ours=True)
    current = read_current(target, job)
    is_text = isinstance(current, str) and to_number(current) is None and name not in _LEAST
    values = [one.strip() if is_text else parse_value(one) for one in listed.split("|")]
    if target.startswith(ENV) and name not in _LEAST:
        values = [one.strip() for one in listed.split("|")]
    for value in values:
        _check_value(name, value)
    return Parameter(name, target, tuple(dict.fromkeys(values)))


def _check_value(name: str, value: Any) -> None:
    least = _LEAST.get(name)
    is_whole = isinstance(value, int) or (name == "buckets" and isinstance(value, float))
    if least is not None and not (is_whole and value >= least):
        raise UsageError(f"--over {name}: {value!r} is not a number from {least} on", f"--over {name}=2|4")
    if value == "":
        raise UsageError(f"--over {name}: there is an empty value", _EXAMPLE)
    # A table or a comment would not show what is tried.
    if any(unicodedata.category(one) in ("Cc", "Cs") for one in str(value)):
        raise UsageError(f"--over {name}: {value!r} has a control character, or is not UTF-8")
    refusal = describe_refusal(value)
    if refusal:
        raise UsageError(f"--over {name}: {refusal}")


def _target_of(name: str, job: Any) -> str:
    """Return what the name stands for in this job. Raises UsageError."""
    if name == PROCS:
        if not _has_procs(job):
            kind = job.distribution.type if job.distribution else "plain"
            what = f"--over procs needs a job with the distribution pytorch or mpi; this one is {kind}"
            raise UsageError(what, "--over threads")
        return PROCS
    if name == "threads":
        return ENV + _THREADS
    if name.startswith(ENV):
        if not re.fullmatch(r"[A-Za-z_]\w*", name.removeprefix(ENV), re.ASCII):
            raise UsageError(f"--over: {name!r} is not the name of a variable", "env:NAME=a|b")
        _check_variable(name.removeprefix(ENV))
        return name
    if name in KNOWN_NAMES:
        target = find_target(name, job)
        if target:
            return target
        usual = KNOWN_NAMES[name][1]
        raise UsageError(
            f"--over {name}: the job has neither an input {usual!r} nor a variable {usual.upper()!r}",
            f"declare one that your script reads, or name another: --over INPUT=1|2, --over env:{usual.upper()}=1|2",
        )
    literals = list_literals(job)
    if name in literals:
        return INPUT + name
    inputs = ", ".join(literals) or "none"
    raise UsageError(
        f"--over: {name!r} is neither a setting nor an input with a value",
        f"procs, threads, workers, batch, buckets, env:NAME=a|b, or an input of the job: {inputs}",
    )


def _check_variable(name: str) -> None:
    """Raise UsageError for a variable of the launcher; parameters of MPI are the user's."""
    if name in (*SWITCHES, DETAIL):
        raise UsageError(f"--over: {name!r} says how steps are followed, which is how they are measured")
    if is_rank_variable(name, UNSET) and "_MCA_" not in name:
        raise UsageError(
            f"--over: the launcher sets {name!r} for each rank, so it cannot be tried",
            "to try numbers of ranks: --over 'procs=1|2'",
        )


def _has_procs(job: Any) -> bool:
    return hasattr(job.distribution, "process_count_per_instance")


def _choose_values(name: str, target: str, job: Any, site: NodeRoom) -> tuple[Any, ...]:
    """Return the values to try of a parameter that was named without any. Raises UsageError."""
    if name == "buckets":
        return _USUAL_BUCKETS
    if name == "batch":
        now = to_number(read_current(target, job))
        if now is None or now < 1 or now != int(now):
            raise UsageError("--over batch: the job's own is no whole number", "--over batch=32|64|128")
        return tuple(dict.fromkeys((max(1, int(now) // 2), int(now), 2 * int(now), 4 * int(now))))
    if name not in (PROCS, "threads", "workers"):
        raise UsageError(f"--over {name}: its values are missing", f"--over {name}=a|b")
    if site.cores is None:
        raise UsageError(
            f"--over {name}: the nodes of this compute are not known from here", f"--over {name}=1|2|4"
        )
    if name == PROCS:
        return _double(site.gpus or site.cores)
    if name == "threads":
        return _double(site.cores)
    return (0, *_double(min(site.cores, _MOST_WORKERS)))


def _double(most: int) -> tuple[int, ...]:
    """
    Return the powers of two up to ``most``, and itself.

    >>> _double(6)
    (1, 2, 4, 6)
    """
    powers = [1 << exponent for exponent in range(most.bit_length()) if 1 << exponent <= most]
    return tuple(dict.fromkeys((*powers, most)))
