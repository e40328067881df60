"""Four ranks of MPI, of which the third ends as the first argument says; or all wait."""

import os
import signal
import sys

from mpi4py import MPI

how = sys.argv[1]
world = MPI.COMM_WORLD
world.Barrier()


def save(*_: object) -> None:
    """What a training script does when it is told to end: all ranks at once."""
    world.Barrier()
    print("saved together", flush=True)
    # Without that, one that is still in the barrier finds the connections of those that have ended closed.
    MPI.Finalize()
    os._exit(0)


if how == "grace":
    signal.signal(signal.SIGTERM, save)
if world.rank == 2:
    if how == "exit":
        os._exit(3)
    if how == "abort":
        world.Abort(5)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "unfinished":
        os._exit(0)
print("waits", flush=True)
while True:
    signal.pause()
