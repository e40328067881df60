"""The surroundings of the job's processes on this node: environment variables, and the files that go with each rank."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from drumline.contract import messages as m
from drumline.node import hook_folder
from drumline.node import scratch as scratch_folders
from drumline.node.containers import rank_containers
from drumline.node.warm.ranks import Task

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


SHARED_MEMORY_VARIABLES = ("OMPI_MCA_btl_vader_backing_directory", "OMPI_MCA_btl_sm_backing_directory")
"""Open MPI 4's name and 5's for the folder in shared memory, which each node has for itself."""


class JobEnvironment:
    """The surroundings of the job's processes on this node. ``scratch``: the node's own folder; empty for none."""

    def __init__(self, scratch: str) -> None:
        self.scratch = scratch
        self.launch = m.LaunchRanks([], "", [], [], {})
        """What is started; nothing, at first."""

        self.shared = m.ShareVariables({}, {}, {})

        self.bin = ""
        """The folder of the shims, first on the PATH; empty: there are none."""

    def begin(self, launch: m.LaunchRanks) -> None:
        """Take in what is started, completed by what is the same for all nodes."""
        env = {**self.shared.env, **launch.env}
        last = {**self.shared.last, **self.shared.secrets}
        ranks = [rank._replace(env={**env, **self._put_texts(rank.env), **last}) for rank in launch.ranks]
        helpers = {**env, **self.shared.last, **launch.node_env}
        self.launch = launch._replace(ranks=ranks, node_env=helpers)

    def _put_texts(self, variables: Mapping[str, str]) -> dict[str, str]:
        found = dict(variables)
        for reference, text in self.shared.texts.items():
            found = {name: value.replace(reference, text) for name, value in found.items()}
        return found

    def inherited_variables(self) -> dict[str, str]:
        """Return what every process of the job on this node has."""
        variables = _inherit(self.launch.unset)
        # At level 0 (cron, systemd, a command of ssh) a rank's bash may take itself for started from afar, and then
        # reads ~/.bashrc.
        if variables.get("SHLVL", "0").strip() in ("", "0"):
            variables["SHLVL"] = "1"
        if self.scratch:
            variables["TMPDIR"] = self.scratch
        memory = scratch_folders.choose_shared_memory_folder(self.scratch)
        if memory and os.path.isdir(memory):
            # In a folder of its own it goes with that, whoever is killed.
            variables |= dict.fromkeys(SHARED_MEMORY_VARIABLES, memory)
        return variables

    def helper_variables(self) -> dict[str, str]:
        """Return those of a process that is no rank: a launcher, its daemons, commands from other nodes."""
        return self._with_bin({**self.inherited_variables(), **self.launch.node_env})

    def _with_bin(self, variables: dict[str, str]) -> dict[str, str]:
        if self.bin:
            variables["DRUMLINE_BIN"] = self.bin
            variables["PATH"] = os.pathsep.join((self.bin, variables.get("PATH", os.defpath)))
        return variables

    def rank_task(self, rank: m.RankLaunch, variables: dict[str, str]) -> Task:
        """Return how a rank is started that has these variables; they are changed."""
        hook_folder.add_hook(variables, self.notes_of(rank.rank), self.steps_of(rank.rank))
        if self.scratch:
            variables["DRUMLINE_DEADLINE"] = self.deadline
        argv, cwd, container = rank.argv, self.launch.cwd, self.launch.container
        if container:
            argv, variables = rank_containers.wrap_command(
                container, argv, variables, rank.env, cwd, self.scratch
            )
        else:
            variables = self._with_bin(variables)
        launch = self.launch
        return Task(rank.rank, argv, variables, cwd, rank.log, launch.cores, launch.secrets)

    @property
    def deadline(self) -> str:
        """Return the file that says until when ranks that were told to end may run; empty: there is none."""
        return os.path.join(self.scratch, "deadline") if self.scratch else ""

    def notes_of(self, rank: int) -> str:
        """Return the file in which a rank's Pythons note how they fail; empty: there is no place for one."""
        return os.path.join(self.scratch, f"failures-{rank}.jsonl") if self.scratch else ""

    @property
    def steps(self) -> str:
        """Return the folder that holds a file for the steps of each rank that makes steps; empty: there is none."""
        return os.path.join(self.scratch, "steps") if self.scratch and self.launch.steps else ""

    def steps_of(self, rank: int) -> str:
        """Return the file in which a rank notes its steps; empty: they are not followed."""
        return os.path.join(self.steps, str(rank)) if self.steps else ""

    def log_of(self, rank: int) -> str:
        """Return the file that a rank writes to; empty for no rank of this node."""
        return next((one.log for one in self.launch.ranks if one.rank == rank), "")

    @property
    def search_path(self) -> str:
        """Return the PATH of the ranks."""
        env = self.launch.ranks[0].env if self.launch.ranks else {}
        return env.get("PATH") or os.environ.get("PATH", os.defpath)

    def remove_scratch(self) -> None:
        scratch_folders.remove_scratch(self.scratch)
        scratch_folders.remove_scratch(scratch_folders.choose_shared_memory_folder(self.scratch))


def _inherit(unset: Iterable[str]) -> dict[str, str]:
    """Return the agent's variables less those named; a name that ends in ``*`` stands for all that begin so."""
    exact = {name for name in unset if not name.endswith("*")}
    prefixes = tuple(name[:-1] for name in unset if name.endswith("*"))
    return {
        name: value
        for name, value in os.environ.items()
        if name not in exact and not (prefixes and name.startswith(prefixes))
    }
