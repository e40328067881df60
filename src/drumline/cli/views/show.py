"""``drumline job show``, ``show-services``, ``stacks`` and ``update``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from drumline.cli import output
from drumline.cli.arguments import get_name
from drumline.contract.errors import UsageError
from drumline.contract.folder import current_workspace
from drumline.contract.words import format_count
from drumline.control.jobs import job_folders
from drumline.control.jobs.lookup import folder_of
from drumline.control.jobs.recovery import recover
from drumline.control.terminal import clean

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable

    from drumline.control.facts.start import AttemptStart, PhaseTimes, RankTimes


def show(arguments: Namespace) -> int:
    if arguments.timeline:
        if arguments.web:
            raise UsageError("--timeline and --web exclude each other")
        return _show_timeline(arguments)
    if arguments.attempt is not None:
        raise UsageError("--attempt needs --timeline", "add --timeline")
    return show_job(arguments)


def _show_timeline(arguments: Namespace) -> int:
    from drumline.control.facts import start

    name = get_name(arguments, "job")
    recover(folder_of(name))
    told = start.describe_start(name, arguments.attempt)
    if arguments.output not in (None, "table") or arguments.query:
        output.show(told, arguments.output, arguments.query)
        return 0
    print(render_start(told), end="")
    return 0


def show_job(arguments: Namespace) -> int:
    """Show the job that ``add_name`` took."""
    name = get_name(arguments, "job")
    if arguments.web:
        open_web_view(name)
    if output.is_for_people(arguments.output, arguments.query):
        from drumline.cli.views.page import print_page

        print_page(name)
    else:
        from drumline.control.facts import description

        output.show(description.show_job(name), arguments.output, arguments.query)
    return 0


def open_web_view(name: str) -> None:
    """Open the job's page in a studio that runs, else print the path of its run folder. Raises NotFoundError."""
    from drumline.control.access import browser

    folder = folder_of(name)
    if not browser.show_job(folder.name, current_workspace()):
        print(f"file://{folder.path}", file=sys.stderr)


def show_services(arguments: Namespace) -> int:
    from drumline.control.facts import description

    output.show(description.show_services(get_name(arguments, "job")), arguments.output, arguments.query)
    return 0


def show_stacks(arguments: Namespace) -> int:
    from drumline.control.access import stack_groups

    answer = stack_groups.ask_stacks(get_name(arguments, "job"))
    if arguments.output not in (None, "table") or arguments.query:
        output.show(answer, arguments.output, arguments.query)
        return 0
    from drumline.cli.screen import print_text

    print_text(stack_groups.format_stacks(answer))
    return 0


# The start of an attempt for people: a bar a phase, and a sentence that names what took longest.


WIDTH = 80

_NAME = 20
_FIGURE = 9
_SLOW_RANKS = 3
_SLOW_RANK_S = 0.5
_MOST_PARTS = 5
_MOST_LETTERS = 200
_DONE, _AWAITED = "=", "."

_PHASE_NAMES = {
    "submitted": "from its submission until it was taken up",
    "decided": "until it was taken up again",
    "attempt ended": "ending what was left of the attempt before",
    "in line": "waiting in line",
    "preparing": "preparing code, data and environment",
    "agents joined": "starting the agents on its nodes",
    "imports": "the imports that its ranks share",
    "ranks started": "starting the ranks",
    "first output": "the ranks until each had written something",
    "process group": "the ranks until each was in its process group",
}
"""Of phases, after "What took longest:"."""


def render_start(told: AttemptStart, width: int = WIDTH) -> str:
    """Render the result of ``start.describe_start``. Lines with names or reasons may be longer than ``width``."""
    end_s = _end(told)
    lines = [_title(told), ""]
    lines.append(f"{'':<{_NAME}}{'from s':>{_FIGURE}}{'to s':>{_FIGURE}}")
    parts = sorted((one for one in told.phases if one.part_of), key=lambda one: -(one.took_s or 0.0))
    for one in told.phases:
        if not one.part_of or one in parts[:_MOST_PARTS]:
            lines += _phase(one, end_s, width)
    if len(parts) > _MOST_PARTS:
        lines.append(f"  and {len(parts) - _MOST_PARTS} more that took less")
    lines += [*_drills(told), *_experiments(told), "", *_warm(told), *_slow_ranks(told), *_summary(told)]
    return clean("\n".join(lines).rstrip() + "\n")


def _title(told: AttemptStart) -> str:
    nodes = {one.node for one in told.ranks} or {one.node for one in told.nodes}
    text = f"job {told.job}"
    if told.attempts > 1:
        text += f", attempt {told.attempt} of 0-{told.attempts - 1}"
    if told.ranks:
        text += f", {format_count(len(told.ranks), 'rank')} on {format_count(len(nodes), 'node')}"
    if told.attempt:
        later = f"{_seconds(told.since_submission_s)} s after its submission"
        text += f"\nstarted again, {later}, because {_line(told.cause)}"
        return text + "\nseconds since that happened"
    return text + "\nseconds since its submission"


def _line(text: str) -> str:
    return " ".join(str(text).split())


def _end(told: AttemptStart) -> float:
    """Return the end of the chart; a phase that is not over goes on until now."""
    ends = [float(one.to_s) for one in told.phases if one.to_s is not None]
    return max([0.001, *ends, float(told.now_s or 0.0)])


def _phase(one: PhaseTimes, end_s: float, width: int) -> list[str]:
    name = ("  " if one.part_of else "") + _line(clean(one.phase))
    if len(name) > _NAME - 1:
        name = name[: _NAME - 3] + ".."
    figures = f"{_seconds(one.from_s):>{_FIGURE}}{_seconds(one.to_s):>{_FIGURE}}"
    bar = _bar(one, end_s, width - _NAME - 2 * _FIGURE - 2)
    lines = [f"{name:<{_NAME}}{figures}  {bar}".rstrip()]
    notes = [_shorten(_line(one.note))] if one.note else []
    if one.missing:
        notes.append(f"{format_count(one.missing, 'rank')} not yet, or not seen")
    return [*lines, *(f"    {note}" for note in notes)]


def _drills(told: AttemptStart) -> list[str]:
    """Return a line on each failure that was made on purpose, with when it began."""
    return [
        f"{'drill':<{_NAME}}{_seconds(one.from_s):>{_FIGURE}}{'':>{_FIGURE}}  {_line(one.drill)}"
        for one in told.drills
    ]


def _experiments(told: AttemptStart) -> list[str]:
    """Return a line on each experiment of DeepSpeed's autotuner, with its times and, where it failed, the cause."""
    return [
        f"{'experiment':<{_NAME}}{_seconds(one.from_s):>{_FIGURE}}{_seconds(one.to_s):>{_FIGURE}}  "
        + _line(f"{one.experiment} {one.status.lower()}" + (f": {one.reason}" if one.reason else ""))
        for one in told.experiments or ()
    ]


def _shorten(text: str) -> str:
    return text if len(text) <= _MOST_LETTERS else text[: _MOST_LETTERS - 2] + ".."


def _seconds(seconds: float | None) -> str:
    if seconds is None:
        return "..."
    return f"{seconds:.3f}" if abs(seconds) < 1000 else f"{seconds:.0f}"


def _bar(one: PhaseTimes, end_s: float, columns: int) -> str:
    """Draw a bar: dots where the phase was waited for, and at least one sign for what happened."""
    since, begin, until = (
        min(columns - 1, max(0, int(seconds / end_s * columns)))
        for seconds in (one.since_s or 0.0, one.from_s or 0.0, end_s if one.to_s is None else one.to_s)
    )
    since = min(since, begin)
    return " " * since + _AWAITED * (begin - since) + _DONE * max(1, until - begin + 1)


def _warm(told: AttemptStart) -> list[str]:
    """Return lines on why ranks were started cold, and which imports were not shared."""
    warm = [one.warm for one in told.nodes if one.warm]
    lines = [f"imported ahead up to {_line(one.until)}" for one in warm if one.until]
    for one in told.warm_declined:
        who = f"rank {one.rank}" if one.rank is not None else f"node {one.node}"
        lines.append(f"{who}: started without shared imports: {_line(one.reason)}")
    return [*dict.fromkeys(lines)]


def _slow_ranks(told: AttemptStart) -> list[str]:
    """Return lines on the slowest ranks, if they were much slower than most."""
    reads: tuple[Callable[[RankTimes], float | None], ...] = (
        lambda rank: rank.group_formed_s,
        lambda rank: rank.first_output_s,
    )
    began_s = min((rank.started_s or 0.0 for rank in told.ranks), default=0.0)
    for read in reads:
        times = [(seconds, rank) for rank in told.ranks if (seconds := read(rank)) is not None]
        if len(times) < 2:
            continue
        times.sort(key=lambda one: -one[0])
        median = times[len(times) // 2][0]
        usual = max(0.0, median - began_s)
        slow = [rank for seconds, rank in times if seconds - median > max(_SLOW_RANK_S, usual / 2)]
        if slow:
            return [_slow_rank(rank) for rank in slow[:_SLOW_RANKS]]
    return []


def _slow_rank(one: RankTimes) -> str:
    text = f"slow: rank {one.rank} on node {one.node}: started {_seconds(one.started_s)}"
    if one.first_output_s is not None:
        text += f", first output {_seconds(one.first_output_s)}"
    if one.group_formed_s is not None:
        text += f", process group {_seconds(one.group_formed_s)}"
    return text


def _summary(told: AttemptStart) -> list[str]:
    most = told.longest
    if most is None:
        return []
    share = round(100 * most.seconds / told.total_s) if told.total_s else 100
    what = _PHASE_NAMES.get(most.phase, most.phase)
    so_far = "What took longest" if told.now_s is None else "What has taken longest so far"
    text = f"{so_far}: {what}, {_seconds(most.seconds)} s of {_seconds(told.total_s)} s ({share} %)."
    parts = [one for one in told.phases if one.part_of == most.phase and one.took_s]
    if parts:
        part = max(parts, key=lambda one: one.took_s or 0.0)
        text += f" Of that, {_line(part.phase)} took {_seconds(part.took_s)} s."
    elif most.rank is not None and len(told.ranks) > 1:
        text += f" Rank {most.rank} was last."
    return [text]


def update_job(arguments: Namespace) -> int:
    from drumline.cli.entity_flags import parse_edits
    from drumline.control.facts import description

    name = get_name(arguments, "job", "updating", changes=True)
    if arguments.add:
        raise UsageError("--add: no field that can be changed is a list", "--set tags.NAME=VALUE")
    changes = parse_edits(description.show_job(name, is_whole=True), arguments.set, arguments.remove)
    job_folders.edit(name, changes)
    return show_job(arguments)
