"""The pod of the supervisor: requests reach it as an annotation of the pod, and its events leave it as output."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from typing import TYPE_CHECKING

from drumline.contract import secrets
from drumline.contract.folder import write_whole
from drumline.engines.kubernetes import objects
from drumline.engines.kubernetes.manifests import pod_files
from drumline.engines.kubernetes.pod.first_process import FirstProcess

if TYPE_CHECKING:
    from drumline.contract.folder import RunFolder


def main(folder: RunFolder) -> int:
    """Supervise the job of that run folder to its end; return the job's exit code."""
    first = FirstProcess(folder)
    requests = Requests(folder)
    first.fork(lambda: _supervise(folder))
    while True:
        requests.poll()
        ended = first.look()
        if ended is not None:
            first.finish()
            return ended if ended >= 0 else 1
        first.pause()


def _supervise(folder: RunFolder) -> int:
    """Become the supervisor, which lies above the engines. It gets the secrets as from every engine: in halves."""
    environment = dict(os.environ)
    with contextlib.suppress(FileNotFoundError):
        with open(os.path.join(pod_files.BUNDLE, pod_files.SECRETS_FILE), encoding="utf-8") as file:
            pad, masked = secrets.split(file.read())
        folder.write(folder.secrets, secrets.add_pad("", pad))
        environment[secrets.VARIABLE] = masked
    argv = [sys.executable, "-P", "-m", "drumline.supervisor", "--batch", folder.path]
    os.execve(argv[0], argv, environment)  # noqa: S606


class Requests:
    """Writes requests into the run folder, from where the supervisor takes them."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._known = ""

    def poll(self) -> None:
        """Take in requests that have come since."""
        try:
            with open(os.path.join(objects.NOTES, "requests"), encoding="utf-8") as file:
                text = file.read()
        except OSError:
            return
        if text == self._known:
            return
        self._known = text
        try:
            wanted = json.loads(text or "{}")
        except ValueError:
            return
        for name, content in wanted.items():
            if name in objects.REQUEST_FILES:
                write_whole(os.path.join(self._folder.path, name), str(content))
