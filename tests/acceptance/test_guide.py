"""The pages of docs that can be followed, block by block, each in a folder of its own."""

import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import guides
import pytest
from cli_jobs import job_names, wait_for_status

from drumline.contract.status import TERMINAL

FILE_NAME = re.compile(r"# ([\w./-]+\.\w+)\n")
TIMEOUT_S = 120


def run(argv, folder):
    """Standard output and standard error of a command that ended with 0."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "HOME": str(folder)}
    with tempfile.TemporaryFile("w+") as out:
        done = subprocess.run(
            argv,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            timeout=TIMEOUT_S,
        )
        out.seek(0)
        said = out.read()
    assert done.returncode == 0, said
    return said


def shell(text, folder, code=0):
    """Each command of the text: whether it ended so, and printed what the page says; ``...`` is anything."""
    script = [
        "set -e" if code == 0 else "",
        f'drumline() {{ {shlex.quote(sys.executable)} -m drumline "$@"; }}',
    ]
    expected: list[list[str]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            expected.append([])
            script += [f"echo '=== {len(expected)}'", line[2:]]
            script += [f"[ $? = {code} ] || exit 99"] if code else []
        else:
            expected[-1].append(line)
    said = run(["bash", "-c", "\n".join(script)], folder)
    parts = re.split(r"^=== \d+\n", said, flags=re.MULTILINE)[1:]
    for lines, part in zip(expected, parts, strict=True):
        printed = part.splitlines()
        for line in lines:
            pattern = ".*".join(map(re.escape, line.split("...")))
            # The page leaves lines out by "..." alone; without it they are all there.
            assert line == "..." or any(re.fullmatch(pattern, text) for text in printed), (
                f"{line!r} in\n{part}"
            )
        assert "..." in lines or len(printed) == len(lines) or not lines, f"more than {lines} in\n{part}"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", guides.GIVEN)
def test_every_block_of_the_page_runs(tmp_path, drumline_home, page):
    for name, text in guides.GIVEN[page].items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    for command in guides.BEFORE.get(page, ()):
        shell(f"$ {command}\n", tmp_path)
    commands = 0
    for block in guides.blocks(guides.DOCS / f"{page}.md"):
        named = FILE_NAME.match(block.text)
        if block.why_not:
            continue
        if named:
            path = tmp_path / named[1]
            path.parent.mkdir(exist_ok=True)
            path.write_text(block.text[named.end() :] if path.suffix == ".json" else block.text)
        elif block.kind == "python":
            run([sys.executable, "-c", block.text], tmp_path)
        elif block.kind == "console":
            commands += 1
            shell(block.text, tmp_path, block.code)
    assert commands
    for name in job_names(drumline_home):
        wait_for_status(name, *TERMINAL)


def test_every_block_of_commands_is_run_or_has_a_reason():
    found = guides.count()
    assert not [reason for reason in found if reason.startswith("no reason")], (
        "tests/guides.py: GIVEN, NOT_RUN"
    )
    assert set(guides.NOT_RUN.values()) <= set(found)
    assert not guides.GIVEN.keys() & guides.NOT_RUN.keys()
    assert found["run"] > sum(found.values()) * 2 / 3
