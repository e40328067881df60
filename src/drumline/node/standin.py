"""
What runs in the place of a rank, of ssh and of pdsh, and has the agent of its node do the work.

    rank                   started by an MPI's daemon: the agent starts the rank, with the variables that MPI gave us
    ssh  [options] HOST WORD...      a command on another node of the job; ``rsh`` is the same
    pdsh [options] -w HOSTS WORD...  a command on several of them

A host that is no node of the job is left to the real program. Run as a file by the agent's own Python, without the
package (``python -I -S standin.py DOOR ADDRESS MODE ...``): it imports what starts in a few milliseconds, since one
of it starts for every rank. ``door`` has the other end, and says what the two exchange.
"""

from __future__ import annotations

import _socket
import os
import select
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

_CHUNK = 1 << 16
_DRAIN_S = 1.0
"""For what a command that has ended may still have written; a daemon it left may hold its output open for ever."""

_WITH_VALUE = frozenset("BbcDEeFIiJLlmOopQRSWw")
"""Options of ssh that take a value. Source: ssh(1)."""

_PDSH_WITH_VALUE = frozenset("wxglftRu")
"""Options of pdsh that take a value. Source: pdsh(1)."""

NOT_OURS = "not ours"


class Command:
    """A command on another node: its two streams, and its end as the agent tells it."""

    def __init__(self, door: str, address: str, host: str, text: str) -> None:
        self.host = host
        token = os.urandom(16).hex()
        server = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
        server.bind((address, 0))
        server.listen(2)
        self.door = _call(door, "shell", host, str(server.getsockname()[1]), token, text)
        self.streams: dict[int, tuple[int, bytes]] = {}
        """Descriptor to (the descriptor of ours that it goes to, what was not yet a whole line)."""

        self.input = -1
        self.reply = ""
        self.code: int | None = None
        self._token = token.encode()
        self._server = server

    def begin(self) -> bool:
        """Wait until both streams are there; False when it ended before, or the host is none of the job's."""
        poller = select.poll()
        poller.register(self.door, select.POLLIN)
        poller.register(self._server.fileno(), select.POLLIN)
        while len(self.streams) < 2:
            ready = [descriptor for descriptor, _ in poller.poll()]
            if self._server.fileno() in ready:
                self._accept()
            elif not self.hear():
                return False
        self._server.close()
        return True

    def _accept(self) -> None:
        """Whoever cannot show the token is sent away: anybody on the machine can connect."""
        descriptor, _ = self._server._accept()  # type: ignore[attr-defined]
        shown = b""
        while len(shown) < len(self._token) + 1:
            data = os.read(descriptor, len(self._token) + 1 - len(shown))
            if not data:
                break
            shown += data
        if shown[:-1] != self._token or shown[-1:] not in (b"1", b"2"):
            os.close(descriptor)
            return
        self.streams[descriptor] = (int(shown[-1:]), b"")
        if shown[-1:] == b"1":
            self.input = descriptor

    def hear(self) -> bool:
        """The agent's word on it; False when there will be none, or it is over."""
        data = os.read(self.door, _CHUNK).decode()
        self.reply += data
        if data and not self.reply.endswith("\n"):
            return True
        self.code = _code_of(self.reply)
        return False

    def forward(self, descriptor: int, label: str) -> bool:
        """What came on that stream, in whole lines behind ``label`` if there is one; False at its end."""
        target, rest = self.streams[descriptor]
        data = _read(descriptor)
        if label:
            lines = (rest + data).split(b"\n")
            rest = b"" if not data else lines.pop()
            prefix = label.encode() + b": "
            whole = b"".join(prefix + line + b"\n" for line in lines if line or data)
        else:
            whole = data
        self.streams[descriptor] = (target, rest)
        _write(target, whole)
        return bool(data)


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, _CHUNK)
    except ConnectionError:
        return b""


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _call(door: str, *words: str | bytes) -> int:
    """Ask the agent for something; the descriptor on which it answers."""
    peer = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    peer.connect(door)
    payload = b"\0".join(word if isinstance(word, bytes) else os.fsencode(word) for word in words)
    peer.sendall(b"%010d" % len(payload) + payload)
    return peer.detach()


def _code_of(reply: str) -> int:
    """The exit code for what the agent said: ``exited 3``, ``signal 9``, ``refused``."""
    kind, _, number = reply.strip().partition(" ")
    if kind == "exited":
        return int(number)
    return 128 + int(number) if kind == "signal" else 255


def stand_for_rank(door: str) -> int:
    """Until the rank has ended well. One that failed is not told here: the agent ends us with all the rest."""
    environment = [name + b"=" + value for name, value in os.environb.items()]
    peer = _call(door, "rank", *environment)
    reply = b""
    while not reply.endswith(b"\n"):
        data = os.read(peer, _CHUNK)
        if not data:
            return 255
        reply += data
    return _code_of(reply.decode())


class Pump:
    """Moves what the commands print to our output, and our input to a single one of them."""

    def __init__(self, commands: list[Command], labeled: bool) -> None:
        self._commands = commands
        self._labeled = labeled
        self._poller = select.poll()
        self._of: dict[int, Command] = {}
        """By descriptor: those on which something of a command is still to come."""

        self._feed = -1
        """Where our input goes; -1: nowhere."""

    def run(self) -> int:
        """Until all have ended; the highest exit code."""
        for command in self._commands:
            if command.begin():
                self._watch(command)
        self._begin_input([command.input for command in self._commands if command.input >= 0])
        while self._of:
            over = all(command.code is not None for command in self._commands)
            ready = self._poller.poll(_DRAIN_S * 1000 if over else None)
            if over and not ready:
                break
            for descriptor, _ in ready:
                self._move(descriptor)
        return max(255 if command.code is None else command.code for command in self._commands)

    def _watch(self, command: Command) -> None:
        for descriptor in (command.door, *command.streams):
            self._of[descriptor] = command
            self._poller.register(descriptor, select.POLLIN)

    def _begin_input(self, inputs: list[int]) -> None:
        if len(inputs) == 1 and _is_open(0):
            self._feed = inputs[0]
            self._poller.register(0, select.POLLIN)
            return
        for descriptor in inputs:
            _end_input(descriptor)

    def _move(self, descriptor: int) -> None:
        if descriptor == 0:
            data = _read(0)
            if not data or not _pass_on(self._feed, data):
                self._poller.unregister(0)
                _end_input(self._feed)
            return
        command = self._of[descriptor]
        label = command.host if self._labeled else ""
        more = command.hear() if descriptor == command.door else command.forward(descriptor, label)
        if not more:
            self._poller.unregister(descriptor)
            del self._of[descriptor]


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def _pass_on(descriptor: int, data: bytes) -> bool:
    try:
        _write(descriptor, data)
    except OSError:
        return False
    return True


def _end_input(descriptor: int) -> None:
    peer = _socket.socket(fileno=descriptor)
    try:
        peer.shutdown(_socket.SHUT_WR)
    except OSError:
        pass
    finally:
        peer.detach()


def _options(words: list[str], with_value: frozenset[str]) -> tuple[dict[str, str], list[str]]:
    """The options that a program of this kind takes, and the words after them."""
    found: dict[str, str] = {}
    while words and words[0].startswith("-") and words[0] != "-":
        word, words = words[0], words[1:]
        if word == "--":
            break
        for place, letter in enumerate(word[1:], start=1):
            found[letter] = ""
            if letter in with_value:
                found[letter] = word[place + 1 :]
                if not found[letter] and words:
                    found[letter], words = words[0], words[1:]
                break
    return found, words


def ssh(door: str, address: str, words: list[str]) -> int:
    _, rest = _options(list(words), _WITH_VALUE)
    if not rest:
        return become_real("ssh", words)
    host, rest = rest[0].rpartition("@")[2], rest[1:]
    # Options may follow the host as well: ssh HOST -p 22 command.
    _, rest = _options(rest, _WITH_VALUE)
    command = Command(door, address, host, " ".join(rest))
    code = Pump([command], labeled=False).run()
    return become_real("ssh", words) if command.reply.startswith(NOT_OURS) else code


def pdsh(door: str, address: str, words: list[str]) -> int:
    options, rest = _options(list(words), _PDSH_WITH_VALUE)
    hosts = [host.rpartition("@")[2] for host in options.get("w", "").split(",") if host]
    if not hosts or not rest:
        return become_real("pdsh", words)
    text = " ".join(rest)
    commands = []
    for number, host in enumerate(hosts):
        # Of pdsh(1)'s own placeholders, those that launchers use.
        filled = text.replace("%n", str(number)).replace("%h", host).replace("%%", "%")
        commands.append(Command(door, address, host, filled))
    code = Pump(commands, labeled="N" not in options).run()
    if all(command.reply.startswith(NOT_OURS) for command in commands):
        return become_real("pdsh", words)
    return code if "S" in options or code == 255 else 0


def become_real(program: str, words: list[str]) -> NoReturn:
    """The next program of that name on the PATH."""
    own = os.path.dirname(os.path.realpath(__file__))
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        path = os.path.join(folder, program)
        if os.path.realpath(folder) != own and os.access(path, os.X_OK):
            os.execv(path, [program, *words])  # noqa: S606 - what the user called
    sys.stderr.write(f"{program}: not a node of this job, and there is no other {program} on the PATH\n")
    sys.exit(255)


def main() -> int:
    door, address, mode, *words = sys.argv[1:]
    if mode == "rank":
        return stand_for_rank(door)
    return pdsh(door, address, words) if mode == "pdsh" else ssh(door, address, words)


if __name__ == "__main__":
    sys.exit(main())
