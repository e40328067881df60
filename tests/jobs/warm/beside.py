"""A module of the program's own, which warns when it is imported."""

import sys
import warnings

warnings.warn("imported", UserWarning if "-w" in sys.argv else FutureWarning, stacklevel=1)


def warn():
    warnings.warn("called", RuntimeWarning, stacklevel=2)
