"""A program beside a module that has the name of the library's."""

import inspect
import sys

try:
    import numpy as np
except ImportError as error:
    np = error

print(sys.modules["token"].__file__, inspect.__name__)
