"""
What commands and expressions answer, as a program: ``python read_only.py`` takes a JSON object on standard input.

``seal``: a folder that is mounted on itself, read-only, before anything else; the process has a mount namespace for
that. ``commands``: lists of words after ``drumline``. ``expressions``: Python, in which ``client`` and ``workspace``
are those of the SDK and of v1.
"""

import contextlib
import io
import json
import subprocess
import sys


def answer_command(words):
    """The exit code, and what was printed."""
    from drumline.cli.main import main

    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(words)
    return [code, out.buffer.getvalue().decode(), err.buffer.getvalue().decode()]


def answer_expression(text, names):
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            return repr(eval(text, names))
        except Exception as error:  # noqa: BLE001 - an answer like any other
            return f"{type(error).__name__}: {error}"


def answer(asked):
    if asked["seal"]:
        for options in (["--bind", asked["seal"], asked["seal"]], ["-o", "remount,bind,ro", asked["seal"]]):
            subprocess.run(["mount", *options], check=True)
    answers = {" ".join(words): answer_command(words) for words in asked["commands"]}
    if asked["expressions"]:
        from drumline import MLClient, v1

        client, workspace = MLClient(), v1.Workspace.get("")
        names = {"client": client, "workspace": workspace, "v1": v1}
        answers |= {text: answer_expression(text, names) for text in asked["expressions"]}
    return answers


if __name__ == "__main__":
    json.dump(answer(json.load(sys.stdin)), sys.stdout)
