"""What libraries hold of the process, and what each process must have of its own."""

from __future__ import annotations

import asyncio
import atexit
import codecs
import contextvars
import decimal
import faulthandler
import getpass
import importlib.util
import locale
import logging
import multiprocessing
import os
import platform
import random
import secrets
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import tracemalloc
import uuid

from seen.interpreter import called, plain

try:
    import numpy as np
except ImportError:
    np = None  # type: ignore[assignment]


def of_atexit():
    return atexit._ncallbacks()


def of_faulthandler():
    return [faulthandler.is_enabled(), tracemalloc.is_tracing()]


def of_locale():
    found = {name: locale.setlocale(getattr(locale, name)) for name in dir(locale) if name.startswith("LC_")}
    return {**found, "own": locale.getlocale(), "encoding": locale.getpreferredencoding()}


def of_logging():
    root = logging.getLogger()
    return {
        "root": [root.level, root.disabled, [called(handler) for handler in root.handlers], root.filters],
        "disable": root.manager.disable,
        "names": sorted(logging.root.manager.loggerDict),
        "began": logging._startTime / (1e9 if logging._startTime > 1e12 else 1) > began() - 0.05,
        "class": called(logging.getLoggerClass()),
        "last": logging.lastResort.level if logging.lastResort else None,
        "process": logging.makeLogRecord({}).process is None,
    }


def began() -> float:
    """When this process did."""
    with open("/proc/self/stat") as file:
        ticks = int(file.read().rpartition(")")[2].split()[19])
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.time() - age


def of_temporary():
    return [tempfile.tempdir, tempfile.gettempdir()]


def of_machine():
    return [
        socket.gethostname(),
        platform.node(),
        getpass.getuser(),
        os.path.expanduser("~"),
        socket.getdefaulttimeout(),
    ]


def of_contexts():
    return [len(contextvars.copy_context()), str(decimal.getcontext()), codecs.lookup("utf-8").name]


def of_multiprocessing():
    ours = multiprocessing.current_process()
    return {
        "process": [ours.name, ours.pid == os.getpid(), ours.daemon, ours.exitcode, type(ours).__name__],
        "parent": plain(multiprocessing.parent_process()),
        "children": multiprocessing.active_children(),
        "method": [multiprocessing.get_start_method(allow_none=True), multiprocessing.get_start_method()],
        "key": ours.authkey == multiprocessing.current_process().authkey,
        "cores": multiprocessing.cpu_count(),
    }


def of_loops():
    policy = asyncio.get_event_loop_policy() if sys.version_info < (3, 14) else None
    return [called(policy), asyncio._get_running_loop()]


def of_numpy():
    if np is None:
        return None
    shown = {name: str(value) for name, value in np.get_printoptions().items()}
    return {"shown": shown, "errors": np.geterr(), "file": np.__file__, "buffer": np.getbufsize()}


def of_own():
    """Each process has another of these."""
    own = {
        "random": random.random(),
        "random, of its own": random.Random().random(),
        "secrets": secrets.token_hex(8),
        "uuid4": str(uuid.uuid4()),
        "uuid1": str(uuid.uuid1()),
        "hash": hash("text"),
        "key": multiprocessing.current_process().authkey.hex(),
        "pid": os.getpid(),
        "ssl": ssl.RAND_bytes(8).hex(),
        "name": next(tempfile._get_candidate_names()),
        "place": id(own_place),
    }
    if np is not None:
        own["numpy"] = float(np.random.random())
        own["numpy, of its own"] = float(np.random.default_rng().random())
    return own


def own_place():
    pass


def of_start():
    """Of modules that note when, where or by whom they were imported."""
    return {
        "signal": [called(signal.getsignal), threading.get_ident() == threading.main_thread().ident],
        "finders": importlib.util.find_spec("beside") is not None,
        "helpers": called(subprocess.Popen),
    }
