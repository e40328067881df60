"""
The steps of a training loop, for the agent: how long each took, and where its time went.

After each step of an optimizer, a record goes into a ring of a fixed size, in a file that the agent reads
(``node/metrics/step_windows.py`` has its layout too). One process writes, and waits for nobody; what nobody reads is
written over. It is written by calls, not mapped: where a disk is full, or a program truncates the file, a write to a
map would kill the program.

PyTorch's own places are used: its hook after every optimizer's step, the iterators of its DataLoader, its entry to
backward, and the stamps of DistributedDataParallel's logger. As careful as ``sitecustomize``: the standard library
alone, and where anything is otherwise, that figure is missing, or all of them.

Only the first process of a rank that makes a step writes: children that it forks, such as a DataLoader's, do not count.
"""

from __future__ import annotations

import os
import sys
from time import perf_counter, time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

MAGIC = b"DLSTEPS2"
HEADER_BYTES = 4096
RECORD = "<Q10dQ"
RECORD_BYTES = 96
CAPACITY = 4096
HEADER, HEAD_AT = "<8sQqq24xQ", 8
"""Magic, newest record, process, whether each step is kept; at its end the time, by which a later program differs."""

TOTAL_AT, BEFORE_AT, PASS_AT, SOURCE_AT, SOURCE_BYTES = 32, 40, 48, 64, 128
BUCKETS_AT, BUCKETS_BYTES = 192, 2048
CALLS_AT, CALL_SLOTS, CALLS_MOST = HEADER_BYTES + CAPACITY * RECORD_BYTES, 8, 32
CALL_SLOT = "<QQ32dQ"
CALL_SLOT_BYTES = 280
"""Of a step, the times at which collectives began: its number, how many, the times, its number again."""

BATCHES, STEPS = 2, 3
"""Counts of this file, after those of ``collectives.py``: batches of a DataLoader, and steps of any optimizer."""

_CALLS_INTERVAL_S = 0.25
"""Between two steps of which these times are written, at least."""

_LOGGER_INTERVAL_S = 0.04
"""To ask DistributedDataParallel's logger takes 30 to 80 µs: 0.2 % of this."""

_ASKED_AT, _ASKED_EVERY = (2, 4, 8, 16, 64, 128, 256, 512), 1024
"""The steps at which the program is asked how many there are in all: it may know only later, or change it."""

_OTHERS_MOST, _SAME_MOST = 50, 2
"""
Steps of another optimizer without one of the one that is counted: the program has left that. The second number is for
another one of the same parameters; one that wraps the counted one makes no two steps without it.
"""

_HIGH_DESCRIPTORS = (900, 200, 50)
"""From which on a descriptor is looked for: a program may close those from 3 on, and use the numbers again."""

_NESTED_MOST = 12
"""Calls between a step of an optimizer and one of its base class, at most."""

_NAN = float("nan")
_UNKNOWN = (_NAN,) * 4


class Steps:
    """
    The steps of this process. ``path``: the file of the ring. ``finder``: as ``TotalFinder``; None: what the program
    itself says of its steps is not known. ``collectives``: as ``Collectives``; None: they are not noted.
    """

    def __init__(self, path: str, finder: Any = None, collectives: Any = None) -> None:
        self._ring = _Ring(path)
        self._finder = finder
        self._collectives = collectives
        self._calls_stride = 1
        self._engine_step: Any = None
        self._logger = _DdpLogger()
        self._optimizer: Any = lambda: None
        """A weak reference to the one whose steps are counted."""

        self._others: dict[int, int] = {}
        """How often others have made a step since that one's last."""

        self._step_end = self._mark = perf_counter()
        self._input_s = self._forward_s = self._backward_s = 0.0
        self._is_in_backward = False
        """One that computes parts of forward again calls others."""

        self.is_on = True

    def note_input(self, began: float, thread: int, batches: Any = None) -> None:
        """
        Note that the loop has waited for input since ``began``. ``batches``: the iterator that gave it; None: that had
        no more.
        """
        if self._ring.thread in (0, thread):
            self._mark = perf_counter()
            self._input_s += self._mark - began
            if self._finder and batches is not None:
                try:
                    if self._finder.note_batch(batches, self._ring.number):
                        self._ring.put_pass(self._finder.pass_steps)
                except Exception:
                    self._finder = None

    def begin_backward(self, thread: int) -> float | None:
        """Return the time from which backward counts; None: it is part of another, or of another thread's loop."""
        if self._is_in_backward or self._ring.thread not in (0, thread):
            return None
        self._is_in_backward = True
        # An optimizer may make its step within backward, which runs in a thread of its own on a GPU.
        self._ring.thread = thread
        began = perf_counter()
        self._forward_s += began - self._mark
        return began

    def end_backward(self, began: float | None) -> None:
        """Note that backward has returned, or failed, which began then."""
        if began is None:
            return
        self._is_in_backward = False
        self._mark = perf_counter()
        self._backward_s += self._mark - began

    def wants_collectives(self) -> bool:
        """Return whether the begin of a collective is of use: DistributedDataParallel notes its own."""
        return self.is_on and not self._logger.is_followed

    @property
    def has_begun(self) -> bool:
        """Return whether a step was counted."""
        return self._ring.number > 0

    def note_ddp(self, module: Any) -> None:
        """Have the logger of a DistributedDataParallel note every iteration."""
        self._logger.follow(module)

    def note_step(self, optimizer: Any) -> None:
        """Note that a step of an optimizer is done."""
        if not self.is_on or ("deepspeed" in sys.modules and self._repeats_step()):
            return
        if self._optimizer() is not optimizer and not self._changes_to(optimizer):
            return
        if self._others:
            self._others.clear()
        end = perf_counter()
        if self._ring.number == 0 and not self._ring.open():
            self.is_on = False
            return
        is_known = self._ring.number > 0 and not self._changes_thread()
        if self._finder:
            self._finder.note_step()
        took = end - self._step_end
        logged = self._logger.ask(took, self._ring)
        if is_known:
            self._ring.write(took, self._input_s, self._forward_s, self._backward_s, *logged)
        else:  # All since the import of PyTorch: the program has loaded its model and its data too.
            self._ring.write(took if self._ring.number else _NAN, _NAN, _NAN, _NAN, *logged)
        self._input_s = self._forward_s = self._backward_s = 0.0
        number = self._ring.number
        if self._collectives:
            self._write_calls(took, number)
        if self._finder and (number in _ASKED_AT or number % _ASKED_EVERY == 0):
            self._ask_total(number)
        self._step_end = self._mark = perf_counter()

    def _changes_thread(self) -> bool:
        """Return whether another thread trains than the one that was followed, in which nothing has happened."""
        from _thread import get_ident

        if self._is_in_backward or self._forward_s or self._backward_s or self._ring.thread == get_ident():
            return False
        self._ring.thread = get_ident()
        return True

    def _changes_to(self, optimizer: Any) -> bool:
        """Return whether the steps of this optimizer are counted from now on: the other one is gone, or was left."""
        if self._optimizer() is not None:
            made = self._others[id(optimizer)] = self._others.get(id(optimizer), 0) + 1
            if made < (_SAME_MOST if _trains_same(optimizer, self._optimizer()) else _OTHERS_MOST):
                return False
        from weakref import ref

        self._optimizer = ref(optimizer)
        return True

    def _write_calls(self, took: float, number: int) -> None:
        """Write when the collectives of some steps began; powers of two, so that all ranks have the same steps."""
        times = self._collectives.take(CALLS_MOST)
        while self._calls_stride < 1024 and took * self._calls_stride < _CALLS_INTERVAL_S:
            self._calls_stride *= 2
        if took > 2 * _CALLS_INTERVAL_S:
            self._calls_stride = 1
        if times and number > 1 and number % self._calls_stride == 0:
            self._ring.put_calls(number // self._calls_stride % CALL_SLOTS, number, times)

    def _ask_total(self, number: int) -> None:
        try:
            found = self._finder.find(number)
        except Exception:
            self._finder = None
            return
        if found is not None:
            self._ring.put_total(*found)

    def _repeats_step(self) -> bool:
        """Return whether this call of an optimizer is of a step of DeepSpeed's engine that is counted already."""
        try:
            found = self._finder.find_engine_step()
        except Exception:
            return False
        before, self._engine_step = self._engine_step, found
        return found is not None and found == before

    def forget(self) -> None:
        """Leave all to the parent of this process, which was forked."""
        self.is_on = False
        self._ring.let_go()


def _trains_same(optimizer: Any, other: Any) -> bool:
    """Return whether two optimizers begin with the same parameter."""
    try:
        return optimizer.param_groups[0]["params"][0] is other.param_groups[0]["params"][0]
    except Exception:
        return False


class _Ring:
    """The ring in the file ``path``. ``number``: of the newest record; 0: there is none."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = -1
        self._is: Any = None
        """Device and number of the file: the program may close the descriptor, and use its number again."""

        self._pack: Any = None
        self.number = 0
        self.is_detailed = False
        self.thread = 0
        """That of the training loop; 0: not known yet."""

    def open(self) -> bool:
        """Make the file; return False where another process of the rank has it. Raises OSError."""
        from _thread import get_ident
        from fcntl import LOCK_EX, LOCK_NB, flock
        from struct import pack
        from time import time_ns

        try:
            os.mkdir(os.path.dirname(self._path), 0o700)
        except FileExistsError:
            pass
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            flock(file, LOCK_EX | LOCK_NB)
            os.ftruncate(file, 0)
            self.is_detailed = os.environ.get("DRUMLINE_STEPS_DETAIL") == "1"
            os.pwrite(file, pack(HEADER, MAGIC, 0, os.getpid(), self.is_detailed, time_ns()), 0)
        except OSError:
            os.close(file)
            return False
        file = _move_up(file)
        self._is = _identify(file)
        self._file, self._pack, self.thread = file, pack, self.thread or get_ident()
        return True

    def write(self, *values: float) -> None:
        """Write the next record. Raises OSError."""
        at = HEADER_BYTES + self.number % CAPACITY * RECORD_BYTES
        self.number += 1
        self.put(self._pack(RECORD, self.number, time(), *values, 0.0, self.number), at)
        os.pwrite(self._file, self._pack("<Q", self.number), HEAD_AT)

    def let_go(self) -> None:
        """Close the file, which a child of this process would keep locked."""
        try:
            if self._file >= 0 and _identify(self._file) == self._is:
                os.close(self._file)
        except OSError:
            pass
        self._file = -1

    def put_pass(self, steps: int) -> None:
        """Write how many steps a pass over the data makes; 0: not known. Raises OSError."""
        self.put(self._pack("<q", steps), PASS_AT)

    def put_total(self, total: int, before: int, source: str) -> None:
        """Write how many steps there are in all, and before this process, and who says so. Raises OSError."""
        self.put(source.encode()[: SOURCE_BYTES - 1] + b"\0", SOURCE_AT)
        self.put(self._pack("<qq", total, before), TOTAL_AT)

    def put_calls(self, slot: int, number: int, times: list[float]) -> None:
        """Write when the collectives of step ``number`` began, at most ``CALLS_MOST``. Raises OSError."""
        filled = times + [0.0] * (CALLS_MOST - len(times))
        self.put(
            self._pack(CALL_SLOT, number, len(times), *filled, number), CALLS_AT + slot * CALL_SLOT_BYTES
        )

    def put(self, content: bytes, at: int) -> None:
        """Write bytes at that place. Raises OSError, also where the descriptor is of another file by now."""
        if _identify(self._file) != self._is:
            raise OSError("the ring was closed")
        os.pwrite(self._file, content, at)


def _identify(file: int) -> tuple[int, int]:
    found = os.fstat(file)
    return found.st_dev, found.st_ino


def _move_up(file: int) -> int:
    """Return another descriptor of the file, out of the way of the program's, and close this one."""
    from fcntl import F_DUPFD_CLOEXEC, fcntl

    for high in _HIGH_DESCRIPTORS:
        try:
            moved = fcntl(file, F_DUPFD_CLOEXEC, high)
        except OSError:  # fewer are allowed
            continue
        os.close(file)
        return moved
    return file


class _DdpLogger:
    """The logger of the newest DistributedDataParallel, to which it keeps a weak reference."""

    def __init__(self) -> None:
        self._module: Any = None
        self._has_buckets = False
        self._stride = 1
        self._iteration = 0
        """The newest whose figures were returned."""

    @property
    def is_followed(self) -> bool:
        return self._module is not None and self._module() is not None

    def follow(self, module: Any) -> None:
        from weakref import ref

        # On other devices the logger waits for the device, so that PyTorch notes the first ten iterations, and then one
        # in a hundred.
        if {one.device.type for one in module.parameters()} == {"cpu"}:
            module._set_ddp_runtime_logging_sample_rate(1)
        self._module = ref(module)
        self._has_buckets = False
        self._iteration = 0

    def ask(self, took: float, ring: _Ring) -> tuple[float, ...]:
        """
        Return the seconds of all-reduce and of its overlap, and number and time of its begin, of the step before. Not
        a number: not known.
        """
        module = self._module() if self._module else None
        if module is None:
            return _UNKNOWN
        # Powers of two, so that all ranks have the same iterations.
        while self._stride < 1024 and took * self._stride < _LOGGER_INTERVAL_S:
            self._stride *= 2
        if took > 2 * _LOGGER_INTERVAL_S or ring.is_detailed:
            self._stride = 1
        if ring.number % self._stride:
            return _UNKNOWN
        try:
            logged = module.logger._get_ddp_logging_data()
            numbers, sizes = logged.ints_map, logged.strs_map.get("rebuilt_bucket_sizes")
            if sizes and not self._has_buckets:
                self._has_buckets = True
                ring.put(sizes.encode()[: BUCKETS_BYTES - 1] + b"\0", BUCKETS_AT)
            entry = numbers.get("backward_comm_time_start", 0)
            reduce_ns = numbers.get("backward_comm_time", 0)
            overlap_ns = numbers.get("backward_compute_comm_overlap_time", 0)
            iteration = numbers.get("iteration", 0)
        except Exception:
            self._module = None
            return _UNKNOWN
        if not entry or iteration == self._iteration:
            return _UNKNOWN
        self._iteration = iteration
        return reduce_ns / 1e9, overlap_ns / 1e9, iteration, entry / 1e9


def put_into(torch: Any, path: str, find_own: Callable[[str], dict[str, Any]], tell: Any) -> None:
    """
    Follow the steps of this process from now on. ``torch``: the module, imported. ``find_own`` returns the names that
    a file beside this one defines. ``tell``: as of ``Collectives``.
    """
    if os.environ.get("DRUMLINE_HOOK") == "0":
        return

    entering = find_own("collectives.py")
    counts = entering["make_counts"](_move_up)
    # The note of the program's end has what this says.
    collectives = entering["noted"] = entering["Collectives"](counts, tell)
    steps = Steps(path, find_own("step_total.py")["TotalFinder"](), collectives)
    register = getattr(sys.modules.get("torch.optim.optimizer"), "register_optimizer_step_post_hook", None)
    if register is None:  # older than 2.0
        return
    # PyTorch's compiler reads the program: it must not read what is here.
    asks = [getattr(torch, "compiler", None), *map(sys.modules.get, ("torch._dynamo", "torch._utils"))]
    found: Any = next(filter(callable, [getattr(module, "is_compiling", None) for module in asks]), None)
    is_compiling: Callable[[], bool] = found or (lambda: False)

    def after_step(optimizer: Any, *_: Any) -> None:
        if not steps.is_on or is_compiling():
            return
        counts[STEPS] += 1
        try:
            if not _is_part_of_step(optimizer, sys._getframe(1), is_first=not steps.has_begun):
                steps.note_step(optimizer)
        except Exception:
            steps.is_on = False

    register(after_step)
    os.register_at_fork(after_in_child=steps.forget)
    for change, *more in ((_time_input, counts), (_time_backward, collectives), (_know_ddp,)):
        try:
            change(steps, is_compiling, *more)
        except Exception:
            pass
    group = getattr(sys.modules.get("torch._C._distributed_c10d"), "ProcessGroup", None)
    if group is not None:
        entering["put_into"](group, collectives, steps.wants_collectives, is_compiling)


def _is_part_of_step(optimizer: Any, frame: Any, *, is_first: bool) -> bool:
    """
    Return whether a call of an optimizer, whose ``frame`` in PyTorch it is, is a part of a step or none: a subclass
    calls its base, whose hooks are called too. ``is_first``: no step was counted yet; there
    ``torch.distributed.checkpoint`` makes one to have the optimizer's state.
    """
    code, depth = frame.f_code, 0
    frame = frame.f_back
    while frame is not None and depth < _NESTED_MOST:
        if frame.f_code is code and frame.f_locals.get("self") is optimizer:
            return True
        if is_first and frame.f_globals.get("__name__") == "torch.distributed.checkpoint.state_dict":
            return True
        frame, depth = frame.f_back, depth + 1
    return False


def _time_input(steps: Steps, is_compiling: Callable[[], bool], counts: Any) -> None:
    from _thread import get_ident

    kind = sys.modules["torch.utils.data.dataloader"]._BaseDataLoaderIter
    own = kind.__next__

    def next_batch(self: Any) -> Any:
        if not steps.is_on or is_compiling():
            return own(self)
        began = perf_counter()
        try:
            got = own(self)
        except StopIteration:  # It has waited for the end of the data.
            steps.note_input(began, get_ident())
            raise
        counts[BATCHES] += 1
        steps.note_input(began, get_ident(), self)
        return got

    _replace(kind, "__next__", own, next_batch)
    # Python's slot of the class follows; "next" is the name that older versions gave it.
    if getattr(kind, "next", None) is own:
        kind.next = next_batch


def _time_backward(steps: Steps, is_compiling: Callable[[], bool], collectives: Any) -> None:
    from _thread import get_ident

    module = sys.modules["torch.autograd"]
    own = module.backward

    def backward(*arguments: Any, **named: Any) -> Any:
        if not steps.is_on or is_compiling():
            return own(*arguments, **named)
        began = steps.begin_backward(get_ident())
        try:
            result = own(*arguments, **named)
            collectives.cut_off = 0
            return result
        except Exception:
            # DistributedDataParallel's all-reduce may have begun on this rank, and not on one that has left.
            if not steps.wants_collectives():
                collectives.note_cut_off()
            raise
        finally:
            steps.end_backward(began)

    _replace(module, "backward", own, backward)
    # TorchScript knows this function by its place in memory.
    builtins = sys.modules.get("torch.jit._builtins")
    if builtins is not None:
        builtins._register_builtin(backward, builtins._find_builtin(own))


def _know_ddp(steps: Steps, is_compiling: Callable[[], bool]) -> None:
    kind = sys.modules["torch.nn.parallel.distributed"].DistributedDataParallel
    own = kind.__init__

    def begin(self: Any, *arguments: Any, **named: Any) -> None:
        own(self, *arguments, **named)
        if steps.is_on:
            try:
                steps.note_ddp(self)
            except Exception:
                pass

    _replace(kind, "__init__", own, begin)


def _replace(owner: Any, name: str, own: Any, ours: Any) -> None:
    """Put a function of ours in the place of PyTorch's, with its name, signature and documentation."""
    from functools import update_wrapper

    setattr(owner, name, update_wrapper(ours, own))
