"""Whether it is worth a look, from the text of a program alone."""

import pytest

from drumline.node.warm.rank_starter import may_import_third_party


@pytest.mark.parametrize(
    ("text", "gains"),
    [
        ("import os, sys\nfrom json import loads\n", False),
        ("import os as o  # import torch\n", False),
        ("", False),
        ("import os, torch\n", True),
        ("def late():\n    import numpy.linalg as la\n", True),
        ("from torch import nn\n", True),
        ("from . import model\n", True),
        ("from model import Net\n", True),
    ],
)
def test_imports_that_are_not_of_the_standard_library(tmp_path, text, gains):
    (tmp_path / "train.py").write_text(text)
    for command in (["python", "train.py"], ["/bin/bash", "-c", "cd . && python -u 'train.py' --x=1.py.txt"]):
        assert may_import_third_party(command, str(tmp_path)) is gains


@pytest.mark.parametrize("command", ["python -m pkg.train", "python gone.py", 'python "${SCRIPT}"'])
def test_what_cannot_be_seen_may_be(tmp_path, command):
    assert may_import_third_party(["/bin/bash", "-c", command], str(tmp_path))
