"""Each rank ends in a way of its own, all in one job: none of them is ended because another one failed."""

import atexit
import ctypes
import os
import signal
import sys
import threading
import time


def an_exception():
    try:
        inner(0)
    except ZeroDivisionError as error:
        raise ValueError("bad batch") from error


def inner(number):
    return 1 / number


def a_code():
    raise SystemExit(3)


def a_text():
    sys.exit("a text")


def no_finalising():
    print("this is in a buffer", end="")
    os._exit(4)


def no_memory_there():
    ctypes.string_at(0)


def an_abort():
    os.abort()


def a_handler_that_fails():
    atexit.register(print, "a handler at the end")
    atexit.register(inner, 0)


def an_interrupt():
    raise KeyboardInterrupt


def threads_that_run_on():
    def run_on():
        threading.main_thread().join()
        print("a thread after the program's end")

    threading.Thread(target=run_on).start()
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()


def a_broken_pipe():
    reader, writer = os.pipe()
    os.close(reader)
    os.dup2(writer, 1)
    print("to nobody")


def a_thread_that_fails():
    thread = threading.Thread(target=inner, args=(0,), name="failing")
    thread.start()
    thread.join()


class Last:
    def __del__(self):
        inner(0)


def what_cannot_be_raised():
    Last()


def a_module_that_cannot_be_read():
    import bad

    print(bad)


def another_program():
    sys.stdout.flush()
    os.execv("/bin/sh", ["sh", "-c", "echo another program: $0 $RANK; exit 5", "named"])


def a_kill():
    os.kill(os.getpid(), signal.SIGKILL)


def a_signal():
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTERM)


def too_deep():
    too_deep()


def a_child_that_ends_as_well():
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        print("the child's code:", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    else:
        print("in the child")
        sys.exit(6)


def a_hook_of_its_own():
    sys.excepthook = lambda kind, error, trace: print("its own hook:", kind.__name__)
    inner(0)


def nothing():
    pass


ENDINGS = (
    an_exception, a_code, a_text, no_finalising, no_memory_there, an_abort, a_handler_that_fails, an_interrupt,
    threads_that_run_on, a_broken_pipe, a_thread_that_fails, what_cannot_be_raised, a_module_that_cannot_be_read,
    another_program, a_kill, a_signal, too_deep, a_child_that_ends_as_well, a_hook_of_its_own, nothing,
)  # fmt: skip


def main():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    rank = int(os.environ["RANK"])
    with open(f"ready.{rank}", "w"):
        pass
    while not all(os.path.exists(f"ready.{each}") for each in range(len(ENDINGS))):
        time.sleep(0.005)
    print(ENDINGS[rank].__name__)
    ENDINGS[rank]()


if __name__ == "__main__":
    main()
