"""How each contender starts ranks that import torch, and starts them again when one has failed."""

import dataclasses
import shlex
from collections.abc import Callable

import contenders
from contenders import (
    ACCELERATE,
    DRUMLINE,
    FLOOR,
    MPIRUN,
    TORCHRUN,
    TORCHRUN_C10D,
    Command,
    Trial,
)

ONCE_MORE = ("--max-restarts", "1")
# In the rendezvous' own store the next attempt's ranks find the addresses of the last one's, and fail.
# Source: https://github.com/pytorch/pytorch/issues/135712
STORE_OF_THE_RANKS = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}


def at_home(command: Command, trial: Trial, **variables: str) -> Command:
    """The same in a home of the trial's own, where nothing is kept from other trials."""
    return Command(command.argv, {**variables, "DRUMLINE_HOME": str(trial.own_home)})


def drumline(warm: str, *options: str) -> Callable[[Trial], list[Command]]:
    """warm: on or off."""
    return lambda trial: [at_home(contenders.drumline(trial, *options)[0], trial, DRUMLINE_WARM=warm)]


def drumline_warm_stop(trial: Trial) -> Command:
    return at_home(contenders.drumline_warm_stop(trial), trial)


def torchrun_again(trial: Trial) -> list[Command]:
    return [
        Command(command.argv, STORE_OF_THE_RANKS) for command in contenders.torchrun_c10d(trial, *ONCE_MORE)
    ]


def accelerate_again(trial: Trial) -> list[Command]:
    """By rendezvous: as it is by default, a launcher never hears of the other node's failure."""
    commands = contenders.accelerate(trial, "--rdzv_backend", "c10d", "--max_restarts", "1")
    # Both nodes are this machine: the second would serve at the port before the first has looked
    # whether it is free.
    return [
        Command(
            [*command.argv[:2], "--rdzv_conf", f"is_host={int(node == 0)}", *command.argv[2:]],
            STORE_OF_THE_RANKS,
        )
        for node, command in enumerate(commands)
    ]


def mpirun_again(trial: Trial) -> list[Command]:
    """Started once more by the shell, with a port of its own: it restarts nothing itself."""
    first, second = (contenders.mpirun(trial)[0] for _ in range(2))
    port = shlex.quote(f"MASTER_PORT={second.variables['MASTER_PORT']}")
    both = f"{shlex.join(first.argv)} || env {port} {shlex.join(second.argv)}"
    return [Command(["sh", "-c", both], first.variables)]


SPAWNED = dataclasses.replace(
    DRUMLINE, name="Drumline (spawned)", commands=drumline("off"), closing=drumline_warm_stop
)
COLD = dataclasses.replace(SPAWNED, name="Drumline (cold)", commands=drumline("on"), keeps=True)
WARM = dataclasses.replace(COLD, name="Drumline (warm)", before=drumline("on"))

JOINERS = (FLOOR, SPAWNED, COLD, WARM, TORCHRUN, TORCHRUN_C10D, ACCELERATE, MPIRUN)
RESTARTERS = (
    dataclasses.replace(SPAWNED, commands=drumline("off", *ONCE_MORE)),
    dataclasses.replace(COLD, name="Drumline (warm)", commands=drumline("on", *ONCE_MORE)),
    dataclasses.replace(TORCHRUN_C10D, commands=torchrun_again),
    dataclasses.replace(ACCELERATE, name="accelerate (c10d)", commands=accelerate_again),
    dataclasses.replace(MPIRUN, name="mpirun (Open MPI), started again", commands=mpirun_again),
)
