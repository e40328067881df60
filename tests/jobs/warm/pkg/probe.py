"""The same, as a module of a package."""

import numpy as np
from probe import main

assert np

if __name__ == "__main__":
    main()
