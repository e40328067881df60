"""
NVIDIA GPUs by NVML, the library behind nvidia-smi, in a process of its own: a driver that is in trouble answers late or
never, and the agent has ranks to look after.

What a GPU, a driver or a permission does not give is left out: of a GPU that is divided (MIG) the utilisation, and its
parts are listed themselves. Source: NVIDIA's NVML API reference, https://docs.nvidia.com/deploy/nvml-api/ (Device
Queries, Multi Instance GPU Management, Device Structs).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
from typing import TYPE_CHECKING, Any, Optional

from drumline.linux import kernel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


LIBRARY = "libnvidia-ml.so.1"
SWITCH = "DRUMLINE_NVML"
"""The variable with the library's path, where it is not the system's; 0: GPUs are not looked at."""

_DEVICES = ("/dev/nvidiactl", "/dev/dxg", "/proc/driver/nvidia/version")
_NAME_BYTES = 96
_TEMPERATURE_GPU = 0
_MIG_ENABLED = 1
_NOT_AVAILABLE = (1 << 64) - 1
_MAX_PROCESSES = 1024
_MAX_BYTES = 1 << 20


def find_library() -> str:
    """Return the library to load where there may be GPUs; empty: there are none here."""
    named = os.environ.get(SWITCH, "")
    if named:
        return "" if named == "0" else named
    return LIBRARY if any(map(os.path.exists, _DEVICES)) else ""


class GpuReadings:
    """
    The latest numbers of the GPUs of a node, which a helper process asks its driver for: none until ``start``, and none
    after ``end``. ``helper_pid``: 0: there is no such process.
    """

    def __init__(self) -> None:
        self.helper_pid = 0
        self._socket: Optional[socket.socket] = None
        """To the helper; None: there is none."""

        self._pidfd = -1
        self._unread = b""
        self._is_answer_due = self._has_asked = False
        self._latest: list[dict[str, Any]] = []
        self._latest_at = float("-inf")

    @property
    def is_to_be_asked(self) -> bool:
        """Return whether there are GPUs that have not been asked for the next sample."""
        return self._socket is not None and not self._has_asked

    def start(self) -> None:
        """Look for a driver, the first time only; this may start a process. Raises OSError."""
        if self._socket is not None or self._latest_at >= 0:
            return
        self._latest_at = 0.0
        path = find_library()
        if not path:
            return
        ours, theirs = socket.socketpair()
        agent = os.getpid()
        with theirs:
            # Without a helper or a descriptor of it this end is closed with the other, and a helper ends by that.
            pid = os.fork()
            if pid == 0:
                _become_watcher(path, theirs, agent)
            # Whoever reaps the agent's children reaps it, and its number may be another process's then.
            self._pidfd = os.pidfd_open(pid)
        self.helper_pid, self._socket = pid, ours
        self._socket.setblocking(False)
        self._send_question()

    def ask(self) -> None:
        """Ask for the next sample; does not wait for the answer."""
        self._send_question()
        self._has_asked = True

    def _send_question(self) -> None:
        """Send one question at a time: a helper that has not answered yet is not asked again."""
        if self._socket is not None and not self._is_answer_due:
            with contextlib.suppress(OSError):
                self._is_answer_due = self._socket.send(b"?") == 1

    def read(self, now: float, max_age_s: float) -> list[dict[str, Any]]:
        """
        Return the newest answer that is not older than that, for one sample, as ``Gpus.look`` has it. ``now``:
        monotonic seconds.
        """
        self._has_asked = False
        is_gone = False
        if self._socket is not None:
            with contextlib.suppress(OSError):
                while len(self._unread) < _MAX_BYTES and not is_gone:
                    data = self._socket.recv(1 << 16)
                    self._unread += data
                    is_gone = not data
        line, end, rest = self._unread.partition(b"\n")
        if end:
            self._unread, self._is_answer_due = rest, False
            with contextlib.suppress(ValueError):
                listed = json.loads(line)
                self._latest, self._latest_at = listed if isinstance(listed, list) else [], now
        elif now - self._latest_at > max_age_s:
            self._latest = []
        if is_gone:
            # As where the library does not work.
            self.end()
        return self._latest

    def end(self) -> None:
        """End the helper process. The latest numbers stay until they are too old."""
        if self._socket is not None:
            self._socket.close()
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            os.close(self._pidfd)
            self._socket, self.helper_pid = None, 0


def _become_watcher(path: str, peer: socket.socket, agent: int) -> None:
    """Become the watcher, in the child, and never return."""
    try:
        kernel.die_with_parent(signal.SIGKILL, agent)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        # The agent's connections, above all that to the supervisor: their end must be seen.
        kept = os.dup2(peer.fileno(), 3)
        os.closerange(4, 1 + max(int(name) for name in os.listdir("/proc/self/fd")))
        kernel.set_process_name("drumline-gpus")
        question = socket.socket(fileno=kept)
        gpus = Gpus(path)
        while question.recv(1):
            question.sendall(json.dumps(gpus.look(), separators=(",", ":")).encode() + b"\n")
    except BaseException as error:  # noqa: BLE001 - the top of a process
        with contextlib.suppress(OSError):
            os.write(2, f"GPUs are not looked at: {error}\n".encode(errors="replace"))
    finally:
        os._exit(0)


class Gpus:
    """The GPUs by NVIDIA's library. Raises OSError without such a library, or where it does not work."""

    def __init__(self, path: str) -> None:
        import ctypes

        self._ctypes = ctypes
        self._library = ctypes.CDLL(path)

        class Info(ctypes.Structure):
            """nvmlProcessInfo_t, of nvmlDeviceGetComputeRunningProcesses_v2 and _v3."""

            _fields_ = [
                ("pid", ctypes.c_uint),
                ("used", ctypes.c_ulonglong),
                ("instance", ctypes.c_uint),
                ("compute", ctypes.c_uint),
            ]

        self._info = Info
        if not self._succeeds("nvmlInit_v2"):
            raise OSError(f"{path} does not start")

    def look(self) -> list[dict[str, Any]]:
        """
        Return the GPUs as in ``contract.samples``, with ``pids``: each process on it and its memory, where that is
        known.
        """
        count = self._number("nvmlDeviceGetCount_v2")
        found = []
        for index in range(count or 0):
            device = self._ctypes.c_void_p()
            if self._succeeds(
                "nvmlDeviceGetHandleByIndex_v2", self._ctypes.c_uint(index), self._ctypes.byref(device)
            ):
                parts = list(self._parts(device))
                found.append(self._device(str(index), device, is_whole=not parts))
                found += [self._device(f"{index}.{number}", part) for number, part in parts]
        return found

    def _device(self, index: str, device: Any, *, is_whole: bool = True) -> dict[str, Any]:
        gpu: dict[str, Any] = {"i": index, "pids": self._processes(device) if is_whole else []}
        name = self._ctypes.create_string_buffer(_NAME_BYTES)
        if self._succeeds("nvmlDeviceGetName", device, name, self._ctypes.c_uint(_NAME_BYTES)):
            gpu["name"] = name.value.decode(errors="replace")
        utilisation = (self._ctypes.c_uint * 2)()  # nvmlUtilization_t: gpu, memory
        if self._succeeds("nvmlDeviceGetUtilizationRates", device, utilisation):
            gpu["u"] = int(utilisation[0])
        memory = (self._ctypes.c_ulonglong * 3)()  # nvmlMemory_t: total, free, used
        if self._succeeds("nvmlDeviceGetMemoryInfo", device, memory):
            gpu["mem"] = [int(memory[2]), int(memory[0])]
        milliwatts = self._number("nvmlDeviceGetPowerUsage", device)
        if milliwatts is not None:
            gpu["w"] = round(milliwatts / 1000, 1)
        sensor = self._ctypes.c_uint(_TEMPERATURE_GPU)
        celsius = self._number("nvmlDeviceGetTemperature", device, sensor)
        if celsius is not None:
            gpu["T"] = celsius
        return gpu

    def _parts(self, device: Any) -> Iterator[tuple[int, Any]]:
        """Yield the parts of a GPU that is divided, with their numbers."""
        current, pending = self._ctypes.c_uint(), self._ctypes.c_uint()
        references = (self._ctypes.byref(current), self._ctypes.byref(pending))
        if not self._succeeds("nvmlDeviceGetMigMode", device, *references) or current.value != _MIG_ENABLED:
            return
        for number in range(self._number("nvmlDeviceGetMaxMigDeviceCount", device) or 0):
            part = self._ctypes.c_void_p()
            if self._succeeds(
                "nvmlDeviceGetMigDeviceHandleByIndex",
                device,
                self._ctypes.c_uint(number),
                self._ctypes.byref(part),
            ):
                yield number, part

    def _processes(self, device: Any) -> list[list[int]]:
        count = self._ctypes.c_uint(_MAX_PROCESSES)
        infos = (self._info * _MAX_PROCESSES)()
        for version in ("_v3", "_v2"):
            name = f"nvmlDeviceGetComputeRunningProcesses{version}"
            if self._function(name) is not None:
                if not self._succeeds(name, device, self._ctypes.byref(count), infos):
                    return []
                return [
                    [int(info.pid), 0 if info.used == _NOT_AVAILABLE else int(info.used)]
                    for info in infos[: min(count.value, _MAX_PROCESSES)]
                ]
        return []

    def _number(self, name: str, *arguments: Any) -> Optional[int]:
        value = self._ctypes.c_uint()
        return int(value.value) if self._succeeds(name, *arguments, self._ctypes.byref(value)) else None

    def _succeeds(self, name: str, *arguments: Any) -> bool:
        function = self._function(name)
        return function is not None and function(*arguments) == 0

    def _function(self, name: str) -> Optional[Callable[..., int]]:
        """Return a function of the library; None in a library that is older than it."""
        return getattr(self._library, name, None)
