"""
A store over a folder of this machine, for tests of those who use stores: it notes every read, and can be made to wait,
to lie, and to have no versions. As a program it fetches into a run folder.

``python shelf.py FOLDER RUN_FOLDER TARGET [LOG GATE FREE_READS]``: every read is a line in LOG; but for the first
FREE_READS each waits until the file GATE is there. Chunks have CHUNK bytes.
"""

import hashlib
import os
import sys
import threading

from waiting import wait_until

from drumline.contract.folder import RunFolder
from drumline.contract.plan import Fetch
from drumline.contract.uris import parse_uri
from drumline.staging.stores.store import Object, ObjectChangedError
from drumline.staging.transfer import inputs, object_download

URI = "s3://shelf/data"
CHUNK = 10_000


class Shelf:
    """A ``Store``. ``reads`` has path, start and end of each."""

    can_list = True
    url_shown = URI

    def __init__(self, root, *, versions=True, ranges=True, digest=None):
        self.root = str(root)
        self.ranges = ranges
        self.reads = []
        self.before_read = lambda number: None
        self.written = {}
        self._versions = versions
        self._digest = digest or (lambda _: None)
        self._log = threading.Lock()

    def _path(self, found):
        return os.path.join(self.root, found.path) if found.path else self.root

    def _object(self, path, relative):
        found = os.stat(path)
        return Object(relative, found.st_size, self._version(path))

    def _version(self, path):
        return str(os.stat(path).st_mtime_ns) if self._versions else ""

    def stat(self):
        return self._object(self.root, "") if os.path.isfile(self.root) else None

    def list(self):
        for folder, _, names in os.walk(self.root):
            for name in names:
                path = os.path.join(folder, name)
                yield self._object(path, os.path.relpath(path, self.root))

    def read(self, found, start, end):
        with self._log:
            self.reads.append((found.path, start, end))
            number = len(self.reads)
        self.before_read(number)
        with open(self._path(found), "rb") as file:
            file.seek(start)
            data = file.read(end - start)
        if self._version(self._path(found)) != found.version:
            raise ObjectChangedError(f"{found.path} has changed")
        return data

    def digest(self, found):
        return self._digest(found)

    def put(self, relative, file, on_bytes):
        with open(file, "rb") as source:
            self.written[relative] = source.read()
        on_bytes(len(self.written[relative]))

    @property
    def bytes_read(self):
        return sum(end - start for _, start, end in self.reads)


def md5_of(root):
    """A digest that is right."""

    def digest(found):
        with open(os.path.join(root, found.path) if found.path else root, "rb") as file:
            return "md5", hashlib.md5(file.read()).hexdigest()

    return digest


def fetch(run, target, store, **fields):
    """One input into the run folder ``run``, in this process; where it is."""
    wanted = {"kind": "folder", "writable": False, "mode": "ro_mount", **fields}
    one = Fetch("inputs.data", URI, target=os.path.join(run, "inputs", target), **wanted)
    os.makedirs(run, exist_ok=True)
    inputs.fetch_inputs(RunFolder(str(run)), [one], lambda _: (parse_uri(URI), store))
    return one.target


def main(root, run, target, log="", gate="", free_reads="0"):
    store = Shelf(root)
    object_download.CHUNK_BYTES = CHUNK

    def before_read(number):
        if log:
            with open(log, "a") as file:
                file.write(f"{number}\n")
        if gate and number > int(free_reads):
            wait_until(lambda: os.path.exists(gate), 60)

    store.before_read = before_read
    fetch(run, target, store, kind="file" if os.path.isfile(root) else "folder")


if __name__ == "__main__":
    main(*sys.argv[1:])
