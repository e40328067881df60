"""``drumline plan`` and ``job validate``: what a job file would run, and whether it can; nothing is created."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from drumline.cli import output
from drumline.cli.arguments import (
    Parser,
    add_azure,
    add_file,
    add_output,
    enter_workspace,
    load_job_file,
    name_experiment,
)
from drumline.contract.errors import SpecError
from drumline.contract.hiding import HIDDEN, hide_in, hide_in_text, is_secret
from drumline.contract.plan import text_of
from drumline.contract.words import format_count, format_seconds
from drumline.control.submission import planning
from drumline.control.terminal import clean
from drumline.engines.engine_table import is_elsewhere

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Iterable

    from drumline.contract.plan import NodeTask, Plan, RankTask
    from drumline.control.submission.driven import PlannedStep


_MAX_WORD_LENGTH = 500


def main(argv: list[str]) -> int:
    parser = Parser(
        prog="drumline plan", description="Show what a job file would run, without creating anything."
    )
    add_file(parser)
    parser.add_argument("-n", "--name", help="the job's name; default: the file's")
    add_output(parser, "default: readable text")
    add_azure(parser)
    arguments = parser.parse_args(argv)
    with enter_workspace(arguments.workspace_name):
        return _plan(arguments)


def _plan(arguments: Namespace) -> int:
    job = load_job_file(arguments.file, arguments.set)
    job.name = arguments.name or job.name
    name_experiment(job)
    if job.type == "pipeline":
        return _plan_steps(job, arguments)
    plan = planning.plan(job)
    output.print_warnings([*job._warnings, *map(str, planning.list_traps(job)), *plan.warnings])
    form = arguments.output or ("table" if not arguments.query else None)
    if form == "table" and not arguments.query:
        sys.stdout.write(_format_plan(plan, planning.render(plan)))
    elif form == "json" and not arguments.query:
        text = plan.to_json()
        data = json.loads(text)
        shown = hide_in(data)
        # As it is stored: a line for each rank, of which there may be thousands.
        sys.stdout.write((text if shown == data else json.dumps(shown, indent=1)) + "\n")
    else:
        output.show(hide_in(json.loads(plan.to_json())), form, arguments.query)
    return 0


def _plan_steps(job: Any, arguments: Namespace) -> int:
    from drumline.control.submission.driven import check_pipeline

    looked, warnings = check_pipeline(job)
    output.print_warnings([*job._warnings, *map(str, planning.list_traps(job)), *warnings])
    if arguments.output in (None, "table") and not arguments.query:
        sys.stdout.write(format_steps(looked, _format_head))
    else:
        output.show({"steps": describe_steps(looked)}, arguments.output, arguments.query)
    return 0


_REASONS = {
    "NCCL_SOCKET_IFNAME": "the interface that connects its node with node 0",
    "GLOO_SOCKET_IFNAME": "as NCCL_SOCKET_IFNAME",
    "NCCL_IB_HCA": "the active InfiniBand ports if the node has RoCE too; else unset, and NCCL uses all",
    "UCX_NET_DEVICES": "the active InfiniBand ports, else the interface; unset with RoCE alone, and UCX uses the best",
    "NCCL_TOPO_FILE": "nccl_topo_file of the compute",
    "MASTER_ADDR": "node 0's address on a network that every node reaches it by: the compute's interface,"
    " else InfiniBand, else the fastest",
}
"""How a variable is chosen on nodes with networks of their own, once they are known."""


def _format_plan(plan: Plan, script: str) -> str:
    nodes = len(plan.nodes)
    text = _format_head(plan)
    if plan.launcher is not None:
        # Without the shell that tells it where the shims are.
        text += f"started by: {_format_words(plan.launcher.argv[3:])} -> {plan.launcher.log}\n"
    if plan.remote_shell:
        text += "ssh, rsh and pdsh of the command reach the other nodes\n"
    if plan.host_file:
        text += "hosts in $DRUMLINE_HOSTFILE\n" + "".join(
            f"  {line}\n" for line in plan.host_file.splitlines()
        )
    text += _format_preparation(plan)
    if plan.timeout_s is not None:
        text += f"ends after {format_seconds(plan.timeout_s)} at the latest\n"
    if plan.warm != "auto":
        text += f"warm start: {plan.warm}\n"
    if plan.secrets:
        text += f"secrets, taken when it is submitted: {', '.join(plan.secrets)}\n"
    common = {**plan.env, **plan.user_env}
    text += "every rank has\n" + _format_variables(common)
    text += _format_texts(plan)
    for node in plan.nodes:
        text += _format_node(node, plan)
    if is_elsewhere(plan.engine) and nodes > 1:
        why = {name: reason for name, reason in _REASONS.items() if name in common}
        text += "chosen once the nodes are known\n" + "".join(f"  {name}: {why[name]}\n" for name in why)
    if script:
        text += f"sent to {plan.engine}\n" + "".join(f"  {_show(line)}\n" for line in script.splitlines())
    return text


def _format_texts(plan: Plan) -> str:
    """Format the texts that variables refer to, which would be too long beside each rank."""
    if not plan.texts:
        return ""
    lines = [f"  {text_of(name)} = {clean(text)}\n" for name, text in sorted(plan.texts.items())]
    return "in the variables of ranks\n" + "".join(lines)


def _format_preparation(plan: Plan) -> str:
    """Format what is built and read before the ranks start, and uploaded after them."""
    text = ""
    if plan.build is not None:
        text += f"environment: built by {plan.build.kind} in {clean(plan.build.prefix)}\n"
    for fetch in plan.fetches:
        text += f"{clean(fetch.name)}: read from {_show(fetch.uri)}\n"
    for upload in plan.uploads:
        text += f"{clean(upload.name)}: uploaded to {_show(upload.uri)}\n"
    return text


def _format_head(plan: Plan) -> str:
    size = f"{format_count(len(plan.ranks), 'rank')} on {format_count(len(plan.nodes), 'node')}"
    return f"{plan.distribution}: {size}\nruns: {_format_words(plan.argv)}\nin:   {clean(plan.cwd)}\n"


def _format_node(node: NodeTask, plan: Plan) -> str:
    cores = ",".join(map(str, node.cores)) or "all"
    gpus = f", {format_count(node.gpu_count, 'GPU')}" if node.gpu_count else ""
    shown = {name: value for name, value in node.env.items() if name not in plan.user_env}
    text = f"node {node.node}: cores {cores}{gpus}\n" + _format_variables(shown)
    return text + "".join(_format_rank(task, plan) for task in node.ranks)


def _format_rank(task: RankTask, plan: Plan) -> str:
    shown = {name: value for name, value in task.env.items() if name not in plan.user_env}
    runs = f", runs: {_format_words(task.argv)}" if task.argv else ""
    return f"  rank {task.label} -> {task.log}{runs}\n" + _format_variables(shown, "    ")


def _format_words(argv: tuple[str, ...]) -> str:
    """Format a command as one line, without the text of programs that are given as text."""
    shown = [word if len(word) <= _MAX_WORD_LENGTH and "\n" not in word else "(a program)" for word in argv]
    return _show(" ".join(argv if argv[:1] == ("/bin/bash",) else shown))


def _format_variables(variables: Any, indent: str = "  ") -> str:
    return "".join(
        f"{indent}{name}={HIDDEN if value and is_secret(name) else _show(value)}\n"
        for name, value in sorted(variables.items())
    )


def _show(text: str) -> str:
    return clean(hide_in_text(text))


# the steps of a pipeline


def describe_steps(steps: Iterable[PlannedStep]) -> list[dict[str, Any]]:
    """Return the steps for JSON and YAML."""
    return [
        {
            "step": looked.step.name,
            "type": looked.step.job.type,
            "needs": list(looked.step.needs),
            **({"plan": hide_in(json.loads(looked.plan.to_json()))} if looked.plan is not None else {}),
            **({"steps": describe_steps(looked.steps)} if looked.steps else {}),
        }
        for looked in steps
    ]


def format_steps(steps: tuple[PlannedStep, ...], head: Callable[[Plan], str]) -> str:
    """Format the steps as text. ``head`` formats the first lines of a command's plan."""
    text = f"pipeline of {format_count(len(steps), 'step')}\n"
    return text + "".join(_format_step(looked, head) for looked in steps)


def _format_step(looked: PlannedStep, head: Callable[[Plan], str]) -> str:
    step = looked.step
    after = f", after {', '.join(step.needs)}" if step.needs else ""
    text = f"step {clean(step.name)}{clean(after)}\n"
    if looked.plan is not None:
        inner = head(looked.plan)
    elif looked.steps:
        inner = format_steps(looked.steps, head)
    else:
        inner = f"{step.job.type}\n"
    return text + "".join(f"  {line}\n" for line in inner.splitlines())


def validate(arguments: Namespace) -> int:
    """Check a job file as a submission does. Raises SpecError, PlanError, NotFoundError for what it would refuse."""
    from drumline.control.submission import driven
    from drumline.spec.jobs.validate import validate

    job = load_job_file(arguments.file, arguments.set)
    result = validate(job)
    if not result.passed:
        raise SpecError(list(result.problems))
    with planning.locate_problems(job):
        warnings = [*result.warnings, *map(str, planning.list_traps(job)), *driven.warnings_of(job)]
    output.print_warnings(warnings)
    output.show({"result": "Succeeded", "warnings": warnings}, arguments.output, arguments.query)
    return 0
