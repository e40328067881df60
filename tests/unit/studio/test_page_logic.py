"""What the page works out by itself: lines of logs, colours, curves, graphs. Node runs it, where there is one."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

NODE = shutil.which("node")
FOLDER = Path(__file__).parent / "page"
LIMIT_S = 120


@pytest.mark.skipif(NODE is None, reason="node is not installed; the page needs none to run")
@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.glob("*.test.mjs")))
def test_what_the_page_works_out(name):
    command = [str(NODE), "--test", str(FOLDER / name)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert re.search(r"pass [1-9]", done.stdout), done.stdout
