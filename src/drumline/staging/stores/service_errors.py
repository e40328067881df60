"""Errors of a service as one sentence, with only those parts of its text that hold no secret."""

from __future__ import annotations

import re

from drumline.contract.record import NamedTuple

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>([\w.-]{1,80})</Code>")
_MESSAGE = re.compile(r"<Message>([^<\n]{1,200})")
_CUT_OFF = "the connection was cut off"
_REASONS = (
    ("dns error", "the server's name cannot be resolved"),
    ("ConnectionRefused", "connection refused"),
    ("NetworkUnreachable", "the network is not reachable"),
    ("InvalidCertificate", "its certificate is not trusted"),
    ("certificate", "its certificate is not trusted"),
    ("TimedOut", "no answer in time"),
    ("timed out", "no answer in time"),
    ("ConnectionReset", _CUT_OFF),
    ("IncompleteMessage", _CUT_OFF),
    ("IncompleteBody", _CUT_OFF),
    ("connection closed", _CUT_OFF),
    ("decoding response body", _CUT_OFF),
    ("Body", _CUT_OFF),
)


class ErrorSummary(NamedTuple):
    text: str
    status: int = 0
    """Of HTTP; 0: there was no answer, or none that says it."""

    is_about_network: bool = False

    @property
    def is_about_access(self) -> bool:
        return self.status in (401, 403)


def summarize_error(error: BaseException) -> ErrorSummary:
    """Summarize an error of obstore, which holds the service's answer as text."""
    text = str(error)
    status = _STATUS.search(text)
    if status:
        code, message = _CODE.search(text), _MESSAGE.search(text)
        words = [f"{code[1]}" if code else "", message[1].strip().rstrip(".") if message else ""]
        said = ": ".join(word for word in words if word)
        return ErrorSummary(
            f"the service answered {status[1]}" + (f" ({said})" if said else ""), int(status[1])
        )
    if isinstance(error, FileNotFoundError):
        return ErrorSummary("it is not there", 404)
    for mark, words_ in _REASONS:
        if mark in text:
            return ErrorSummary(words_, is_about_network=True)
    first = text.partition("\n")[0]
    return ErrorSummary(re.sub(r"\w+://\S+", "...", first)[:200] or type(error).__name__)
