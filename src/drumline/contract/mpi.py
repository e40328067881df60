"""The MPI that a machine has, as its own launcher says."""

from __future__ import annotations

import re
from typing import Optional

from drumline.contract.record import NamedTuple

OPEN_MPI = "Open MPI"
MPICH = "MPICH"
INTEL = "Intel MPI"
IMAGE_MPI = "the MPI of the image"
"""Which is known on the nodes alone."""

_VERSION_PATTERNS = (
    (OPEN_MPI, r"\(Open MPI\) (\d+)\.(\d+)"),
    (INTEL, r"Intel\(R\) MPI Library.*?Version (\d+)(?:\.(\d+))?"),
    (MPICH, r"(?s)HYDRA build details:.*?Version:\s+(\d+)\.(\d+)"),
)


class Mpi(NamedTuple):
    """
    An MPI of this machine, or of the nodes. ``program``: its launcher as it is called, ``mpirun`` or ``mpiexec``.
    """

    kind: str
    major: int
    minor: int
    program: str


def recognize_mpi(program: str, said: str) -> Optional[Mpi]:
    """
    Return the MPI whose ``program --version`` printed that; None for one that is not known here.

    >>> recognize_mpi("mpirun", "mpirun (Open MPI) 4.1.4")
    Mpi(kind='Open MPI', major=4, minor=1, program='mpirun')
    """
    for kind, pattern in _VERSION_PATTERNS:
        match = re.search(pattern, said)
        if match:
            return Mpi(kind, int(match[1]), int(match[2] or 0), program)
    return None
