"""What ``pip install drumline`` brings along: at most 15 distributions and 25 MB."""

import re
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement

MOST_DISTRIBUTIONS = 15
MOST_BYTES = 25 * 1024 * 1024


def closure(name, found):
    """The distribution and all that it requires, extras left out."""
    key = re.sub(r"[-_.]+", "-", name).lower()
    if key not in found:
        found[key] = distribution(name)
        for requirement in map(Requirement, found[key].requires or ()):
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                closure(requirement.name, found)
    return found


def test_the_core_is_light():
    found = closure("drumline", {})
    assert len(found) <= MOST_DISTRIBUTIONS, sorted(found)
    files = [file for each in found.values() for file in each.files or ()]
    # The project itself may be installed editable: its own files are counted where they are.
    own = list(Path(__file__).parents[2].glob("src/**/*.py"))
    size = sum(file.locate().stat().st_size for file in files if file.locate().exists())
    assert size + sum(path.stat().st_size for path in own) <= MOST_BYTES
