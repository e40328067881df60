"""What a program does, and whether it comes out as it should."""

from __future__ import annotations

import asyncio
import ctypes
import importlib
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

FIRST = (os.environ.get("RANK"), os.environ.get("WORLD_SIZE")) == ("0", "4")
"""What takes time is for one rank of the largest job to try."""


def of_modules():
    """A module beside the program that has the name of one in the library, and one that is made now."""
    import colorsys

    folder = tempfile.mkdtemp()
    try:
        sys.path.append(folder)
        with open(os.path.join(folder, "made_just_now.py"), "w") as file:
            file.write("VALUE = 7")
        importlib.invalidate_caches()
        import made_just_now
    finally:
        sys.path.remove(folder)
        shutil.rmtree(folder)
    return {"shadowed": colorsys.__file__, "made": made_just_now.VALUE}


def of_files():
    with open("relative.txt") as file:
        return file.read()


def of_fork():
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        threads = [threading.active_count(), threading.main_thread() is threading.current_thread()]
        os.write(writer, repr((threads, os.getppid() > 1)).encode())
        os._exit(7)
    os.close(writer)
    with open(reader) as file:
        return [file.read(), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])]


def of_shell():
    """Signals that a child gets, its environment and its descriptors."""
    status = "grep -E '^(Sig[PBIC]|Shd|Umask|Cpus_allowed_list)' /proc/self/status"
    script = f"{status}; ls /proc/self/fd; ulimit -a; echo $PPID"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True)
    *lines, parent = done.stdout.splitlines()
    there = subprocess.run(["env", "-0"], capture_output=True).stdout.decode().split("\0")
    return {"says": lines, "errors": done.stderr, "parent": int(parent) == os.getpid(), "environment": there}


def of_python():
    if not FIRST:
        return None
    program = "import sys; print(sys.path, sys.flags)"
    return subprocess.run([sys.executable, "-c", program], capture_output=True).stdout.decode()


def of_signals():
    got = []
    before = {
        number: signal.signal(number, lambda *_: got.append(_[0]))
        for number in (signal.SIGUSR1, signal.SIGALRM)
    }
    os.kill(os.getpid(), signal.SIGUSR1)
    signal.setitimer(signal.ITIMER_REAL, 0.001)
    while len(got) < 2:
        time.sleep(0.001)
    for number, handler in before.items():
        signal.signal(number, handler)
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(10)
    except KeyboardInterrupt:
        got.append("interrupted")
    return list(map(str, got))


def of_threads():
    found = []
    local = threading.local()
    local.there = True
    workers = [threading.Thread(target=lambda: found.append(hasattr(local, "there"))) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return [found, [worker.name for worker in workers], threading.active_count()]


def of_loop():
    async def both():
        # Below -X dev a step that takes longer is logged, and a busy machine's does.
        asyncio.get_running_loop().slow_callback_duration = 60
        child = await asyncio.create_subprocess_exec("true")
        return [await child.wait(), await asyncio.to_thread(os.getpid) == os.getpid()]

    return asyncio.run(both())


def of_processes():
    if not FIRST:
        return None
    found = {}
    for method in ("fork", "spawn"):
        context = multiprocessing.get_context(method)
        reader, writer = context.Pipe(duplex=False)
        child = context.Process(target=say, args=(writer,))
        child.start()
        found[method] = [reader.recv(), child.name]
        child.join()
        found[method].append(child.exitcode)
    return found


def say(writer):
    names = multiprocessing.parent_process().name, multiprocessing.current_process().name, __name__
    writer.send([*names, sys.argv, sys.path, sys.modules["__main__"].__name__])


def of_calls():
    """Python from C, and a depth of frames that a warm start must not have used up."""
    twice = ctypes.PYFUNCTYPE(ctypes.c_long, ctypes.c_long)(lambda number: 2 * number)

    def down(left):
        return 0 if not left else 1 + down(left - 1)

    return [twice(21), down(sys.getrecursionlimit() - 60), ctypes.pythonapi.Py_IsInitialized()]


def of_numbers():
    try:
        import numpy as np
    except ImportError:
        return None
    square = np.ones((64, 64))
    return float((square @ square).sum())
