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


RANK_NAMES = {
    "OMPI_COMM_WORLD_RANK": OPEN_MPI,
    "PMIX_RANK": "",
    "PMI_RANK": MPICH,
    "PMI_ID": MPICH,
}
"""Where an MPI's launcher says which rank it starts, and whose name that is: MPICH and its kin; empty: of several."""


class Mpi(NamedTuple):
    """
    An MPI of this machine, or of the nodes. ``program``: its launcher as it is called, ``mpirun`` or ``mpiexec``.
    """

    kind: str
    major: int
    minor: int
    program: str


def recognize_library(name: str) -> str:
    """
    Return the MPI of a library by its name. Source: the ABI of MPICH and its kin is version 12, Open MPI's is later.

    >>> recognize_library("libmpi.so.40.30.4"), recognize_library("libmpich.so.12"), recognize_library("libmpi.so.12.1")
    ('Open MPI', 'MPICH', 'MPICH')
    """
    return MPICH if "mpich" in name or re.search(r"\.so\.12(\.|$)", name) else OPEN_MPI


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
