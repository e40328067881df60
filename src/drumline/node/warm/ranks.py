"""
The ranks of a warm start, and the variables that only they have, not their interpreter.

Whatever may change what an import does is the same for both, or the interpreter is another one. Free are the variables
that say which rank of which job a process is, and those of a terminal: an interpreter has none of them while it
imports, and notes it when something looks for one (``hook/warm.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from drumline.contract.record import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

RANK_VARIABLES = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_*",
    "NODE_RANK",
    "GROUP_*",
    "ROLE_*",
    "CROSS_*",
    "MASTER_*",
    "TF_CONFIG",
    "TORCHELASTIC_*",
    "PET_*",
    "OMPI_*",
    "PMI*",
    "PRTE_*",
    "MPI_*",
    "MV2_*",
    "HOROVOD_*",
    "HYDRA_*",
    "HYDI_*",
    "SLURM_*",
    "SLURMD_*",
    "JAX_*",
    "AZ_BATCH*",
    "AZUREML_*",
    "AZURE_ML_*",
    "MLFLOW_*",
    "DRUMLINE_*",
    "CUDA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
    "TMPDIR",
    "PWD",
    "OLDPWD",
    "SHLVL",
    "_",
    "PS1",
    "TERM",
    "TERM_*",
    "COLORTERM",
    "COLUMNS",
    "LINES",
    "LS_COLORS",
    "LESS*",
    "SSH_*",
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
    "XDG_SESSION_*",
    "DBUS_SESSION_BUS_ADDRESS",
    "WINDOWID",
    "VTE_VERSION",
    "TMUX*",
    "STY",
    "VSCODE_*",
    "GIT_ASKPASS",
    "GNOME_TERMINAL_*",
    "KONSOLE_*",
    "JPY_*",
    "INVOCATION_ID",
    "JOURNAL_STREAM",
)
"""A name that ends in ``*`` stands for all that begin so."""


class SplitVariables(NamedTuple):
    env: dict[str, str]
    """What the interpreter has."""

    free: list[str]
    """Names and beginnings of names that only ranks have."""

    differs: list[str]
    """Those of them that these ranks do have."""


def split_variables(ranks: Sequence[Mapping[str, str]], secrets: Sequence[str] = ()) -> SplitVariables:
    """Split the variables of the ranks of a node, one at least; what differs among them is free too, as are secrets."""
    first = ranks[0]
    free = [*RANK_VARIABLES, *sorted(secrets)]
    names = {name for rank in ranks for name in rank}
    differing = {name for name in names if any(rank.get(name) != first.get(name) for rank in ranks)}
    free += sorted(name for name in differing if not is_rank_variable(name, free))
    return SplitVariables(
        {name: value for name, value in first.items() if not is_rank_variable(name, free)},
        free,
        sorted(name for name in names if is_rank_variable(name, free)),
    )


def is_rank_variable(name: str, free: Sequence[str] = RANK_VARIABLES) -> bool:
    return any(name.startswith(one[:-1]) if one.endswith("*") else name == one for one in free)


class Task(NamedTuple):
    """A rank to be started. ``argv``, ``env`` and ``cwd`` as it would be without a warm interpreter."""

    rank: int
    argv: Sequence[str]
    env: dict[str, str]
    cwd: str
    log: str
    cores: Sequence[int]
    secrets: Sequence[str] = ()
    """Names of variables that no warm interpreter may have."""


class StartedRank(NamedTuple):
    rank: int
    pid: int
    error: str
    """Why it could not be started; empty when it was."""

    cold: str
    """Why it was started as if there was no warm interpreter; empty when it was not."""

    before: float = 0.0
    """When that began, in monotonic seconds."""
