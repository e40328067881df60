"""The MPI that a machine has, as its own launcher says."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Optional

from drumline.contract.record import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

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


LIBRARY = re.compile(rb"/(libmpi(?:ch\w*|_\w+|fort|cxx)?\.so[.0-9]*)")
"""The name of an MPI's library in a process's maps."""

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


def find_other_library(launcher_kind: str, libraries: Sequence[str]) -> str:
    """
    Return the first library, if none is of the launcher's MPI: its ranks would not know of each other.

    >>> find_other_library("Open MPI", ["libmpi.so.12.1"]), find_other_library("Intel MPI", ["libmpi.so.12.1"])
    ('libmpi.so.12.1', '')
    """
    own = OPEN_MPI if launcher_kind == OPEN_MPI else MPICH
    return next(iter(libraries), "") if own not in map(recognize_library, libraries) else ""


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
