"""Which MPI a machine has, as its own launcher says."""

from __future__ import annotations

import re
from typing import Optional

from drumline.contract.record import NamedTuple

OPEN_MPI = "Open MPI"
MPICH = "MPICH"
INTEL = "Intel MPI"

_SAID = (
    (OPEN_MPI, r"\(Open MPI\) (\d+)\.(\d+)"),
    (INTEL, r"Intel\(R\) MPI Library.*?Version (\d+)(?:\.(\d+))?"),
    (MPICH, r"(?s)HYDRA build details:.*?Version:\s+(\d+)\.(\d+)"),
)


class Mpi(NamedTuple):
    """``program``: its launcher as it is called, ``mpirun`` or ``mpiexec``."""

    kind: str
    major: int
    minor: int
    program: str


def read(program: str, said: str) -> Optional[Mpi]:
    """
    From what ``program --version`` printed; None for an MPI that is not known here.

    >>> read("mpirun", "mpirun (Open MPI) 4.1.4")
    Mpi(kind='Open MPI', major=4, minor=1, program='mpirun')
    """
    for kind, pattern in _SAID:
        match = re.search(pattern, said)
        if match:
            return Mpi(kind, int(match[1]), int(match[2] or 0), program)
    return None
