"""
The program that runs in the place of ssh and of pdsh, and has the agent of its node do the work.

    ssh  [options] HOST [WORD...]    a command on another node of the job; ``rsh`` is the same
    daemon HOST WORD...              the same for an MPI's launcher, whose ranks end with it
    pdsh [options] -w HOSTS WORD...  a command on several nodes

A host that is no node of the job is left to the real program. Run as a file by the agent's own Python, without the
package (``python -I -S ssh_shim.py SOCKET ADDRESS MODE ...``): it imports what starts in a few milliseconds.
``launcher_socket`` has the other end, and says what the two exchange.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _socket
import os
import select
import sys
from time import monotonic

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

_CHUNK_BYTES = 1 << 16
_DRAIN_TIMEOUT_S = 1.0
"""For what a command that has ended may still have written; a daemon it left may hold its output open for ever."""

_TOGETHER = "DRUMLINE_EXPERIMENT"
"""The variable by which an experiment of an autotuner asks that the commands of a ``pdsh`` end with one that fails."""

_FAILED_S = 5.0
"""For the other commands to fail too, and say why. What waits for a process that is gone may do so for half an hour."""

_SSH_WITH_VALUE = frozenset("BbcDEeFIiJLlmOoPpQRSWw")
"""Options of ssh that take a value. Source: ssh(1)."""

_FORWARDING = frozenset("DLNRW")
"""Those for forwarding, which needs a connection that there is not."""

_PDSH_WITH_VALUE = frozenset("wxglftuRMFXj")
"""Options of pdsh that take a value. Source: pdsh(1)."""

NOT_OURS = "not ours"


class RemoteCommand:
    """A command on another node: its streams, and its end as the agent tells it."""

    def __init__(
        self,
        launcher_socket: str,
        address: str,
        host: str,
        text: str,
        kind: str = "shell",
        *,
        has_input: bool = False,
    ) -> None:
        self.host = host
        self._has_input = has_input
        token = os.urandom(16).hex()
        self._server = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
        self._server.bind((address, 0))
        self._server.listen(64)
        self._server.setblocking(False)
        port = str(self._server.getsockname()[1])
        peer = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        peer.connect(launcher_socket)
        words = (kind, host, port, token, text, "input" if has_input else "")
        request = b"\0".join(map(os.fsencode, words))
        peer.sendall(b"%010d" % len(request) + request)
        self.channel = peer.detach()
        """Where the agent answers."""

        self._token = token.encode()
        self._guests: dict[int, tuple[_socket.socket, bytes]] = {}
        """Who has connected and not yet shown all of the token: anybody on the machine can."""

        self.streams: dict[int, tuple[int, bytes]] = {}
        """Descriptor to (the descriptor of ours that it goes to, what was not yet a whole line)."""

        self._sockets: list[_socket.socket] = []
        self.input: _socket.socket | None = None
        self.reply = ""
        self.code: int | None = None

    def begin(self) -> bool:
        """Wait until all streams are there; False when there are none: it did not start, or the host is not ours."""
        poller = select.poll()
        poller.register(self.channel, select.POLLIN)
        poller.register(self._server.fileno(), select.POLLIN)
        while len(self.streams) < 2 or (self._has_input and self.input is None):
            # One that has ended already connected before it began.
            if self.reply.startswith(NOT_OURS):
                break
            ready = poller.poll(None if self.code is None else _DRAIN_TIMEOUT_S * 1000)
            if not ready:
                break
            for descriptor, _ in ready:
                if descriptor == self._server.fileno():
                    self._accept(poller)
                elif descriptor in self._guests:
                    self._look_at(descriptor, poller)
                elif descriptor == self.channel and not self.hear():
                    poller.unregister(descriptor)
        self._server.close()
        for guest, _ in self._guests.values():
            guest.close()
        return len(self.streams) == 2

    def _accept(self, poller: select.poll) -> None:
        try:
            descriptor, _ = self._server._accept()  # type: ignore[attr-defined]
        except OSError:
            return
        guest = _socket.socket(fileno=descriptor)
        guest.setblocking(False)
        self._guests[descriptor] = (guest, b"")
        poller.register(descriptor, select.POLLIN)

    def _look_at(self, descriptor: int, poller: select.poll) -> None:
        """Admit a guest who shows the token and which of the streams it is; send all others away."""
        guest, shown = self._guests[descriptor]
        try:
            data = guest.recv(len(self._token) + 1 - len(shown))
        except BlockingIOError:
            return
        except OSError:
            data = b""
        shown += data
        if data and len(shown) <= len(self._token):
            self._guests[descriptor] = (guest, shown)
            return
        del self._guests[descriptor]
        poller.unregister(descriptor)
        if shown[:-1] != self._token or shown[-1:] not in (b"0", b"1", b"2"):
            guest.close()
            return
        if shown[-1:] == b"0":
            self.input = guest
            return
        self._sockets.append(guest)
        self.streams[descriptor] = (int(shown[-1:]), b"")

    def hear(self) -> bool:
        """Hear the agent's word on the command; False when there will be none, or it is over."""
        data = os.read(self.channel, _CHUNK_BYTES).decode()
        self.reply += data
        if data and not self.reply.endswith("\n"):
            return True
        self.code = parse_exit_code(self.reply)
        return False

    def forward(self, descriptor: int, label: str) -> bool:
        """Forward what came on that stream, in whole lines behind ``label`` if there is one; False at its end."""
        target, rest = self.streams[descriptor]
        try:
            data = os.read(descriptor, _CHUNK_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            data = b""
        if not data:
            self.flush(descriptor, label)
        elif label:
            *lines, rest = (rest + data).split(b"\n")
            self.streams[descriptor] = (target, rest)
            _write_all(target, b"".join(b"%s: %s\n" % (label.encode(), line) for line in lines))
        else:
            _write_all(target, data)
        return bool(data)

    def flush(self, descriptor: int, label: str) -> None:
        """Write a last line that has no end."""
        target, rest = self.streams[descriptor]
        self.streams[descriptor] = (target, b"")
        if rest:
            _write_all(target, b"%s: %s\n" % (label.encode(), rest))


def _write_all(descriptor: int, data: bytes) -> None:
    """Write all of the data, also to a descriptor that its giver made non-blocking."""
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except BlockingIOError:
            poller = select.poll()
            poller.register(descriptor, select.POLLOUT)
            poller.poll()


def parse_exit_code(reply: str) -> int:
    """Return the exit code for the agent's answer: ``exited 3``, ``signal 9``, ``refused``."""
    kind, _, number = reply.strip().partition(" ")
    if kind == "exited":
        return int(number)
    return 128 + int(number) if kind == "signal" else 255


class StreamPump:
    """Moves what the commands print to our output, and our input to a single one of them."""

    def __init__(
        self, commands: list[RemoteCommand], *, labeled: bool = False, together: bool = False
    ) -> None:
        """``together``: the others are left to their agents, which end them, soon after one has failed."""
        self._commands = commands
        self._labeled = labeled
        self._together = together
        self._deadline: float | None = None
        self._poller = select.poll()
        self._of: dict[int, RemoteCommand] = {}
        """By descriptor: those on which something of a command is still to come."""

        self._remote_input: _socket.socket | None = None
        """Where our input goes."""

        self._pending = b""
        """Of our input: what did not yet go. More is read when it is gone."""

    def run(self, *, in_background: bool = False) -> int:
        """Run until all have ended, and return the highest exit code; in the background, until all have begun."""
        for command in self._commands:
            if command.begin():
                self._watch(command)
        if in_background and self._of and os.fork():
            return 0
        while self._of:
            over = all(command.code is not None for command in self._commands)
            ready = self._poller.poll(_DRAIN_TIMEOUT_S * 1000 if over else self._find_patience_ms())
            if not ready and (over or self._find_patience_ms() == 0):
                break
            for descriptor, what in ready:
                self._move(descriptor, what)
        for descriptor, command in self._of.items():
            if descriptor in command.streams:
                command.flush(descriptor, self._label_of(command))
        codes = [command.code for command in self._commands if command.code is not None]
        return max(codes) if codes and (self._together or len(codes) == len(self._commands)) else 255

    def _find_patience_ms(self) -> float | None:
        """Return how long to wait for the commands; None: without a limit."""
        if self._deadline is None and self._together and any(command.code for command in self._commands):
            self._deadline = monotonic() + _FAILED_S
        return None if self._deadline is None else max(0.0, (self._deadline - monotonic()) * 1000)

    def _watch(self, command: RemoteCommand) -> None:
        told = [command.channel] if command.code is None else []
        for descriptor in (*told, *command.streams):
            self._of[descriptor] = command
            self._poller.register(descriptor, select.POLLIN)
        self._remote_input = command.input
        if self._remote_input is not None:
            self._poller.register(0, select.POLLIN)

    def _label_of(self, command: RemoteCommand) -> str:
        return command.host if self._labeled else ""

    def _move(self, descriptor: int, what: int) -> None:
        if descriptor == 0:
            self._take_input()
        elif self._remote_input is not None and descriptor == self._remote_input.fileno():
            self._poller.unregister(descriptor)
            self._pass_on()
        elif descriptor in self._of:
            command = self._of[descriptor]
            label = self._label_of(command)
            more = command.hear() if descriptor == command.channel else command.forward(descriptor, label)
            if not more:
                self._poller.unregister(descriptor)
                del self._of[descriptor]

    def _take_input(self) -> None:
        try:
            self._pending = os.read(0, _CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            self._pending = b""
        self._poller.unregister(0)
        if self._pending:
            self._pass_on()
        else:
            self._end_input()

    def _pass_on(self) -> None:
        """Pass on as much as the other side takes now; it may be waiting for us to read what it says."""
        if self._remote_input is None:
            return
        try:
            sent = self._remote_input.send(self._pending, _socket.MSG_NOSIGNAL)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._remote_input = None
            return
        self._pending = self._pending[sent:]
        if self._pending:
            self._poller.register(self._remote_input.fileno(), select.POLLOUT)
        else:
            self._poller.register(0, select.POLLIN)

    def _end_input(self) -> None:
        if self._remote_input is not None:
            try:
                self._remote_input.shutdown(_socket.SHUT_WR)
            except OSError:
                self._remote_input.close()
            self._remote_input = None


def _has_input() -> bool:
    """Return whether our standard input is open and no /dev/null, of which nothing has to be passed on."""
    try:
        return os.fstat(0).st_rdev != os.makedev(1, 3)
    except OSError:
        return False


def _parse_options(words: list[str], with_value: frozenset[str]) -> tuple[dict[str, str], list[str]]:
    """
    Split the options of a program of this kind from the words after them; commas join the values of a repeated one.
    """
    found: dict[str, str] = {}
    while words and words[0].startswith("-") and words[0] != "-":
        word, words = words[0], words[1:]
        if word == "--":
            break
        for place, letter in enumerate(word[1:], start=1):
            if letter not in with_value:
                found[letter] = ""
                continue
            value = word[place + 1 :]
            if not value and words:
                value, words = words[0], words[1:]
            found[letter] = f"{found[letter]},{value}" if letter in found else value
            break
    return found, words


def run_ssh(launcher_socket: str, address: str, words: list[str], kind: str) -> int:
    options, rest = _parse_options(list(words), _SSH_WITH_VALUE)
    if not rest:
        return exec_real_program("ssh", words)
    host, rest = rest[0].rpartition("@")[2], rest[1:]
    # Options may follow the host as well: ssh HOST -p 22 command.
    more, rest = _parse_options(rest, _SSH_WITH_VALUE)
    options.update(more)
    # Without a command: a shell that reads its input, as with ssh -T.
    has_input = not options.keys() & {"n", "f"} and _has_input()
    command = RemoteCommand(
        launcher_socket, address, host, " ".join(rest) or "exec /bin/bash -s", kind, has_input=has_input
    )
    if _FORWARDING & options.keys():
        letters = ", ".join(f"-{letter}" for letter in sorted(_FORWARDING & options.keys()))
        command.begin()
        if not command.reply.startswith(NOT_OURS):
            sys.stderr.write(
                f"ssh: {letters}: nodes of a job are reached without a connection to forward by\n"
            )
            return 255
    code = StreamPump([command]).run(in_background="f" in options)
    return exec_real_program("ssh", words) if command.reply.startswith(NOT_OURS) else code


def _expand_hosts(text: str) -> list[str]:
    """
    Expand a list of pdsh's with its brackets.

    >>> _expand_hosts("a,b[1-3,7]")
    ['a', 'b1', 'b2', 'b3', 'b7']
    """
    hosts: list[str] = []
    while text:
        comma, bracket = text.find(","), text.find("[")
        close = text.find("]", bracket)
        if bracket < 0 or close < 0 or 0 <= comma < bracket:
            host, _, text = text.partition(",")
            hosts += [host] if host else []
            continue
        before, inside = text[:bracket], text[bracket + 1 : close]
        after, _, text = text[close + 1 :].partition(",")
        for part in inside.split(","):
            low, _, high = part.partition("-")
            if not low.isdigit() or not (high or low).isdigit():
                hosts.append(f"{before}{part}{after}")
                continue
            numbers = range(int(low), int(high or low) + 1)
            hosts += [f"{before}{number:0{len(low)}d}{after}" for number in numbers]
    return hosts


def run_pdsh(launcher_socket: str, address: str, words: list[str]) -> int:
    options, rest = _parse_options(list(words), _PDSH_WITH_VALUE)
    left_out = {host.rpartition("@")[2] for host in _expand_hosts(options.get("x", ""))}
    hosts = [host.rpartition("@")[2] for host in _expand_hosts(options.get("w", ""))]
    hosts = [host for host in hosts if host not in left_out]
    if not hosts or not rest:
        return exec_real_program("pdsh", words)
    text = " ".join(rest)
    if text.startswith("pkill -f") and "deepspeed.launcher.launch" in text:
        # DeepSpeed, for what its pdsh may have left. That ends by itself here; launchers of other jobs look the same.
        text = "true"
    commands = []
    for number, host in enumerate(hosts):
        # Of pdsh(1)'s own placeholders, those that launchers use.
        filled = text.replace("%n", str(number)).replace("%h", host).replace("%%", "%")
        has_input = len(hosts) == 1 and _has_input()
        commands.append(RemoteCommand(launcher_socket, address, host, filled, has_input=has_input))
    together = _TOGETHER in os.environ
    code = StreamPump(commands, labeled="N" not in options, together=together).run()
    if all(command.reply.startswith(NOT_OURS) for command in commands):
        return exec_real_program("pdsh", words)
    return code if "S" in options or code == 255 else 0


def exec_real_program(program: str, words: list[str]) -> NoReturn:
    """Execute the next program of that name on the PATH."""
    own = os.path.dirname(os.path.realpath(__file__))
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        path = os.path.join(folder, program)
        if os.path.realpath(folder) != own and os.access(path, os.X_OK):
            os.execv(path, [program, *words])  # noqa: S606 - what the user called
    sys.stderr.write(f"{program}: not a node of this job, and there is no other {program} on the PATH\n")
    sys.exit(255)


def main() -> int:
    # As a program in C has them: whoever reads our output may stop, and Ctrl-C ends us without a word.
    _signal.signal(_signal.SIGPIPE, _signal.SIG_DFL)
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    launcher_socket, address, mode, *words = sys.argv[1:]
    if mode == "pdsh":
        return run_pdsh(launcher_socket, address, words)
    return run_ssh(launcher_socket, address, words, "daemon" if mode == "daemon" else "shell")


if __name__ == "__main__":
    sys.exit(main())
