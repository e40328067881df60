"""
Our exceptions: something drumline, or the request to drumline, got wrong.

* DrumlineError
  x DamagedError         a file of a job was changed; a ValueError too  exit 1
  x UsageError           the command line or a call is not usable       exit 2
  x SpecError            the job as written is not valid                exit 2
  x PlanError            valid, but not on these nodes, or not yet      exit 2
  x NotFoundError        no such job, output or file                    exit 3
  x EngineError          what gives nodes refused or did not answer     exit 1
  x NodeError            an agent or supervisor could not do its work   exit 1
  x JobFailedError       raised by ``jobs.stream`` for a failed job     exit 1
  x WaitTimeoutError     raised by ``jobs.wait``; a TimeoutError too    exit 1

A rank that fails is not an exception. It is an event, and ends up in the job's outcome.
Every message is lower case, without a full stop; ``hint`` is the next thing to try.
"""

from __future__ import annotations

import errno

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType


NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
"""The numbers of errors of a disk that is full, of content or of files, or of a quota that is used up."""


def describe_os_error(error: OSError) -> str:
    """
    Return its words and the path that it is about.

    >>> describe_os_error(OSError(28, "No space left on device", "/a/b"))
    'No space left on device: /a/b'
    """
    path = error.filename2 or error.filename
    return f"{error.strerror or error}" + (f": {path}" if path else "")


def hide_passwords(text: str) -> str:
    """Return the text of an error or an entity, which may quote addresses, without their passwords."""
    if "://" not in text:
        return text
    from drumline.contract.hiding import hide_in_text

    return hide_in_text(text)


class _RootError(Exception):
    """Between the root and ``Exception``, whose layout no other can replace: ``drumline/azure.py`` adds bases."""


class DrumlineError(_RootError):
    """The root; ``main()`` prints message and hint, and returns ``exit_code``."""

    exit_code = 1
    error_category = "SystemError"
    """Azure's word for who is to blame: ``UserError`` or ``SystemError``."""

    target = "Job"

    def __init__(self, message: str, hint: str = "") -> None:
        self.message = hide_passwords(message)
        self.hint = hide_passwords(hint)
        Exception.__init__(self, self.message)

    def __str__(self) -> str:
        return self.message + ("\nhint: " + self.hint if self.hint else "")

    @property
    def _render_traceback_(self) -> Callable[[], list[str]]:
        """
        Return the function that gives IPython the lines to show instead of a traceback.

        The lines are the sentence, the hint, and the user's own line.

        With DRUMLINE_DEBUG there is no such attribute, and IPython shows the traceback.
        Source: https://ipython.readthedocs.io/en/stable/config/integrating.html#custom-exception-tracebacks
        """
        import os

        if os.environ.get("DRUMLINE_DEBUG", "0") not in ("", "0"):
            raise AttributeError("_render_traceback_")
        return lambda: [f"{type(self).__name__}: {self}", *_find_line(self.__traceback__)]


def _find_line(traceback: TracebackType | None) -> list[str]:
    """Return the line of the user that led here: the last one before our own code; empty without one."""
    import linecache
    import os

    ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
    place = None
    while traceback is not None and not traceback.tb_frame.f_code.co_filename.startswith(ours):
        place = (traceback.tb_frame.f_code.co_filename, traceback.tb_lineno)
        traceback = traceback.tb_next
    if place is None:
        return []
    # The file of a cell is known to linecache alone.
    where = f"{os.path.basename(place[0])}:{place[1]}" if os.path.exists(place[0]) else f"line {place[1]}"
    return [f"{where}: {linecache.getline(*place).strip()}"]


DAMAGED = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""What code raises that reads a damaged file of a job, where nothing has checked the file before."""


class DamagedError(DrumlineError, ValueError):
    """A file of a job is not as Drumline has written it."""


class UsageError(DrumlineError):
    exit_code = 2
    error_category = "UserError"


class Problem:
    """
    One mistake in a job: what, where, and the next thing to try.

    ``line`` and ``column`` count from 1, 0 where there is no file; ``source_line`` is the text of that line;
    ``width`` is the number of characters the caret underlines; ``path`` is dotted (``resources.instance_count``).
    """

    __slots__ = ("column", "file", "hint", "line", "path", "source_line", "what", "width")

    def __init__(
        self,
        what: str,
        *,
        path: str = "",
        file: str = "",
        line: int = 0,
        column: int = 0,
        source_line: str = "",
        width: int = 1,
        hint: str = "",
    ) -> None:
        self.what = hide_passwords(what)
        self.path = path
        self.file = file
        self.line = line
        self.column = column
        self.source_line = source_line
        self.width = width
        self.hint = hide_passwords(hint)

    @property
    def where(self) -> str:
        """Return ``file:line:column``, the file alone, or nothing."""
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file

    def __str__(self) -> str:
        """Return ``file:line:column: what``, the line with a caret, and the hint, as the command line prints it."""
        text = ": ".join(part for part in (self.where, self.what) if part)
        if self.line and self.source_line:
            gutter = f"{self.line:>5} | "
            caret = " " * (len(gutter) - 2) + "| " + " " * (self.column - 1) + "^" * max(1, self.width)
            text += f"\n{gutter}{self.source_line}\n{caret}"
        if self.hint:
            text += f"\n      hint: {self.hint}"
        return text


class SpecError(DrumlineError):
    """The job as written is not valid; ``problems`` holds every mistake, in the order of the file."""

    exit_code = 2
    error_category = "UserError"

    def __init__(self, problems: list[Problem] | str, hint: str = "") -> None:
        if isinstance(problems, str):
            problems = [Problem(problems, hint=hint)]
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class PlanError(SpecError):
    """
    The job cannot run, or not on these nodes. To whoever catches azure-ai-ml's ValidationException it is one.

    ``problems``: a Problem for each field of the job that is to blame, given by ``path``; empty when none is.
    """

    def __init__(self, problems: list[Problem] | str, hint: str = "", *, path: str = "") -> None:
        if isinstance(problems, str):
            problems = [Problem(problems, path=path, hint=hint)]
        text = "; ".join(problem.what for problem in problems)
        DrumlineError.__init__(self, text, hint or problems[0].hint)
        self.problems = tuple(problem for problem in problems if problem.path)


class NotFoundError(DrumlineError):
    exit_code = 3
    error_category = "UserError"


class EngineError(DrumlineError):
    pass


class NotSubmittedError(EngineError):
    """The engine has understood and said no: nothing of the job is there."""


class NodeError(DrumlineError):
    pass


class JobFailedError(DrumlineError):
    error_category = "UserError"


class WaitTimeoutError(DrumlineError, TimeoutError):
    error_category = "UserError"
