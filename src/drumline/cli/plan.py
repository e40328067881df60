"""``drumline plan``: what a job file would run, rank by rank. A dry run: nothing is created."""

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
    in_workspace,
    load,
    name_experiment,
)
from drumline.contract.uris import shown
from drumline.control.terminal import clean
from drumline.engines.table import is_elsewhere

if TYPE_CHECKING:
    from argparse import Namespace

    from drumline.contract.plan import NodeTask, Plan, RankTask


_LONGEST_WORD = 500


def main(argv: list[str]) -> int:
    parser = Parser(prog="drumline plan", description="Show what a job file would run, and create nothing.")
    add_file(parser)
    parser.add_argument("-n", "--name", help="the job's name, where the file has none")
    add_output(parser, "default: a text for people")
    add_azure(parser)
    arguments = parser.parse_args(argv)
    with in_workspace(arguments.workspace_name):
        return _plan(arguments)


def _plan(arguments: Namespace) -> int:
    from drumline.control import submit

    job = load(arguments.file, arguments.set)
    job.name = arguments.name or job.name
    name_experiment(job)
    if job.type == "pipeline":
        return _plan_steps(job, arguments)
    plan = submit.plan(job)
    for warning in (*job._warnings, *plan.warnings):
        print(f"warning: {clean(warning)}", file=sys.stderr)
    form = arguments.output or ("table" if not arguments.query else None)
    if form == "table" and not arguments.query:
        sys.stdout.write(_for_people(plan, submit.render(plan)))
    else:
        output.show(json.loads(plan.to_json()), form, arguments.query)
    return 0


def _plan_steps(job: Any, arguments: Namespace) -> int:
    from drumline.cli import plan_steps
    from drumline.control.driver.prepare import checked

    looked, warnings = checked(job)
    for warning in (*job._warnings, *warnings):
        print(f"warning: {clean(warning)}", file=sys.stderr)
    if arguments.output in (None, "table") and not arguments.query:
        sys.stdout.write(plan_steps.for_people(looked, _head))
    else:
        output.show({"steps": plan_steps.described(looked)}, arguments.output, arguments.query)
    return 0


_WHY = {
    "NCCL_SOCKET_IFNAME": "the interface by which its node is reached from node 0, or reaches it",
    "GLOO_SOCKET_IFNAME": "as NCCL_SOCKET_IFNAME",
    "NCCL_IB_HCA": "the active InfiniBand ports, where a node has RoCE beside them; else left out, NCCL takes all",
    "UCX_NET_DEVICES": "the active InfiniBand ports, else the interface; with RoCE alone left out, UCX takes the best",
    "NCCL_TOPO_FILE": "nccl_topo_file of the compute",
    "MASTER_ADDR": "node 0's address on the network that reaches it from every node: interface of the compute,"
    " else InfiniBand, else the fastest",
}
"""Of nodes that are machines, with networks of their own; the values are known when the nodes are."""


def _for_people(plan: Plan, script: str) -> str:
    nodes = len(plan.nodes)
    text = _head(plan)
    if plan.launcher is not None:
        # Without the shell that tells it where the stand-ins are.
        text += f"started by: {_words(plan.launcher.argv[3:])} -> {plan.launcher.log}\n"
    if plan.remote_shell:
        text += "ssh, rsh and pdsh of the command reach the other nodes\n"
    if plan.host_file:
        text += "hosts in $DRUMLINE_HOSTFILE\n" + "".join(
            f"  {line}\n" for line in plan.host_file.splitlines()
        )
    text += _prepared(plan)
    if plan.timeout_s is not None:
        text += f"ends after {plan.timeout_s:g} s at the latest\n"
    if plan.warm != "auto":
        text += f"warm start: {plan.warm}\n"
    common = {**plan.env, **plan.user_env}
    text += "every rank has\n" + _variables(common)
    for node in plan.nodes:
        text += _node(node, plan)
    if is_elsewhere(plan.engine) and nodes > 1:
        why = {name: reason for name, reason in _WHY.items() if name in common}
        text += "chosen when the nodes are there\n" + "".join(f"  {name}: {why[name]}\n" for name in why)
    if script:
        text += f"{plan.engine} is sent\n" + "".join(f"  {clean(line)}\n" for line in script.splitlines())
    return text


def _prepared(plan: Plan) -> str:
    """What is made and fetched before the ranks start, and written elsewhere after them."""
    text = ""
    if plan.build is not None:
        text += f"environment: made by {plan.build.kind} in {clean(plan.build.prefix)}\n"
    for fetch in plan.fetches:
        text += f"{clean(fetch.name)}: from {clean(shown(fetch.uri))}\n"
    for upload in plan.uploads:
        text += f"{clean(upload.name)}: written to {clean(shown(upload.uri))}\n"
    return text


def _head(plan: Plan) -> str:
    ranks = len(plan.ranks)
    nodes = len(plan.nodes)
    text = f"{plan.distribution}: {ranks} {_many('rank', ranks)} on {nodes} {_many('node', nodes)}\n"
    return text + f"runs: {_words(plan.argv)}\nin:   {clean(plan.cwd)}\n"


def _node(node: NodeTask, plan: Plan) -> str:
    cores = ",".join(map(str, node.cores)) or "all"
    gpus = f", {node.gpu_count} {_many('GPU', node.gpu_count)}" if node.gpu_count else ""
    shown = {name: value for name, value in node.env.items() if name not in plan.user_env}
    text = f"node {node.node}: cores {cores}{gpus}\n" + _variables(shown)
    return text + "".join(_rank(task, plan) for task in node.ranks)


def _rank(task: RankTask, plan: Plan) -> str:
    shown = {name: value for name, value in task.env.items() if name not in plan.user_env}
    runs = f", runs: {_words(task.argv)}" if task.argv else ""
    return f"  rank {task.label} -> {task.log}{runs}\n" + _variables(shown, "    ")


def _words(argv: tuple[str, ...]) -> str:
    """As one line; a program that is given as text is not shown whole."""
    shown = [word if len(word) <= _LONGEST_WORD and "\n" not in word else "(a program)" for word in argv]
    return clean(" ".join(argv if argv[:1] == ("/bin/bash",) else shown))


def _variables(variables: Any, indent: str = "  ") -> str:
    return "".join(f"{indent}{name}={clean(value)}\n" for name, value in sorted(variables.items()))


def _many(word: str, count: int) -> str:
    return word if count == 1 else word + "s"
