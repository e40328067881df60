"""``drumline completion``: a script for a shell, which asks ``drumline __complete`` for words."""

from __future__ import annotations

import os
import re
import sys
from importlib import import_module
from typing import TYPE_CHECKING

from drumline.cli.arguments import Parser, ParserMade, enter_workspace
from drumline.contract.errors import UsageError
from drumline.contract.record import NamedTuple

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Mapping, Sequence


_BASH = r"""
# drumline: completion for bash. To set it up, add this line to ~/.bashrc:
#   eval "$(drumline completion bash)"
_drumline() {
    local kind word text
    COMPREPLY=()
    {
        read -r kind
        while IFS=$'\t' read -r word text; do COMPREPLY+=("$word"); done
    } < <(command drumline __complete bash "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    local current=${COMP_WORDS[COMP_CWORD]}
    case $current in [=:]) current= ;; esac
    case $kind in
        files) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- "$current") ;;
        folders) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -d -- "$current") ;;
        programs) mapfile -t COMPREPLY < <(compgen -c -- "$current"; compgen -f -- "$current") ;;
    esac
    [[ ${#COMPREPLY[@]} != 1 || ${COMPREPLY[0]} != *= ]] || compopt -o nospace
} 2>/dev/null
complete -o nosort -F _drumline drumline 2>/dev/null || complete -F _drumline drumline
"""

_ZSH = r"""
#compdef drumline
# drumline: completion for zsh. To set it up, add these lines to ~/.zshrc:
#   autoload -Uz compinit && compinit
#   source <(drumline completion zsh)
_drumline() {
    local -a lines words_found texts
    local line kind word text
    lines=("${(@f)$(command drumline __complete zsh "${(@Q)words[2,CURRENT]}" 2>/dev/null)}")
    kind=${lines[1]}
    case $kind in
        files) _files ;;
        folders) _files -/ ;;
        programs) _alternative 'commands:program:_command_names -e' 'files:file:_files' ;;
        *)
            for line in "${(@)lines[2,-1]}"; do
                word=${line%%$'\t'*}
                text=${line#*$'\t'}
                [[ -n $word ]] || continue
                words_found+=("$word")
                if [[ $text != $line ]]; then texts+=("$word  -- $text"); else texts+=("$word"); fi
            done
            (( ${#words_found} )) && compadd -V drumline -l -d texts -a words_found
            ;;
    esac
}
if [[ ${funcstack[1]} = _drumline ]]; then _drumline "$@"; else compdef _drumline drumline; fi
"""

_FISH = r"""
# drumline: completion for fish. To set it up:
#   drumline completion fish > ~/.config/fish/completions/drumline.fish
function __drumline_complete
    set -l words (commandline -opc) (commandline -ct)
    set -l lines (command drumline __complete fish $words[2..-1] 2>/dev/null)
    switch "$lines[1]"
        case files programs
            __fish_complete_path (commandline -ct)
        case folders
            __fish_complete_directories (commandline -ct)
        case '*'
            printf '%s\n' $lines[2..-1]
    end
end
complete -c drumline -f -k -a '(__drumline_complete)'
"""

SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def main(argv: list[str]) -> int:
    parser = Parser(
        prog="drumline completion",
        description="Print a script that completes commands, options and names in your shell. "
        'In bash: eval "$(drumline completion bash)"',
    )
    parser.add_argument("shell", choices=tuple(SCRIPTS), help="the shell")
    arguments = parser.parse_args(argv)
    sys.stdout.write(SCRIPTS[arguments.shell].lstrip("\n"))
    return 0


# the words that can follow: drumline __complete SHELL WORD ...


WORDS, FILES, FOLDERS, PROGRAMS = "words", "files", "folders", "programs"
"""The first line of an answer: the words that follow it are all there are, or the shell looks for files itself."""

_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_ASSETS = ("data", "model", "environment", "component", "datastore")
_NEW_NAMES = ("create", "attach")
"""Verbs whose name is not there yet."""

_BY_DESTINATION = {
    "file": FILES,
    "save_as": FILES,
    "conda_file": FILES,
    "python": FILES,
    "env_file": FILES,
    "path": FILES,
    "download_path": FOLDERS,
    "out": FILES,
    "compute": "compute",
    "workspace_name": "workspace",
    "parent_job_name": "job",
    "experiment": "experiment",
    "experiment_name": "experiment",
    "env": "variable",
    "version": "version",
    "label": "label",
}
_NAME_WORDS = ("NAME", "JOB", "A", "B", "NAMES")


class Answer(NamedTuple):
    kind: str = WORDS
    words: tuple[tuple[str, str], ...] = ()
    """Each with its description, which may be empty."""

    def __str__(self) -> str:
        lines = (f"{word}\t{' '.join(text.split())}" if text else word for word, text in self.words)
        return "".join(f"{line}\n" for line in (self.kind, *lines))


def complete(argv: Sequence[str], commands: Mapping[str, str], modules: Mapping[str, str]) -> str:
    """
    Return the answer to a shell. ``argv``: its name, then the words after ``drumline``, the last one incomplete.

    ``commands``: the commands with their lines of help. Never raises: a shell would print that into a command line.
    """
    shell, words = argv[0], list(argv[1:]) or [""]
    if shell == "bash":
        words = _join_pieces(words)
    try:
        answer = find_words(words[:-1], words[-1], commands, modules)
    except Exception:  # noqa: BLE001 - a broken home completes nothing
        answer = Answer()
    if shell == "bash":
        # What stands before the last = or : it does not replace.
        cut = max(words[-1].rfind("="), words[-1].rfind(":")) + 1
        answer = answer._replace(words=tuple((word[cut:], text) for word, text in answer.words))
    return str(answer)


def _join_pieces(words: Sequence[str]) -> list[str]:
    """Join what bash takes apart at ``=`` and ``:``."""
    joined: list[str] = []
    is_open = False
    for word in words:
        if joined and (word[:1] in ("=", ":") or is_open):
            joined[-1] += word
        else:
            joined.append(word)
        is_open = word[-1:] in ("=", ":") and len(joined) > 0
    return joined


def find_words(
    words: Sequence[str], current: str, commands: Mapping[str, str], modules: Mapping[str, str]
) -> Answer:
    """Return what can stand after ``words`` and begins with ``current``."""
    if words[:1] == ["help"]:
        if len(words) > 2:
            return Answer()
        words = words[1:]
    if not words:
        options = {"--help": "show this help", "--version": "show the version"} if current[:1] == "-" else {}
        return _match(current, {**commands, "help": "show the help of a command", **options}.items())
    if words[0] not in modules:
        return Answer()
    verb = next((word for word in words[1:] if not word.startswith("-")), "")
    parser: argparse.ArgumentParser | None = read_parser(modules[words[0]], verb)
    if parser is None:
        return Answer()
    rest = words[1:]
    if find_verbs(parser):
        if verb not in find_verbs(parser):
            described = {} if verb else describe_verbs(parser)
            return _match(
                current, [*described.items(), *(_list_options(parser) if current[:1] == "-" else ())]
            )
        parser = find_verbs(parser)[verb]
        rest = rest[list(rest).index(verb) + 1 :]
    place = _Place(words[0], verb, rest, parser)
    return place.complete(current)


def _match(current: str, words: Iterable[tuple[str, str]]) -> Answer:
    return Answer(WORDS, tuple(one for one in words if one[0].startswith(current)))


def _list_options(parser: argparse.ArgumentParser) -> list[tuple[str, str]]:
    shown = [action for action in parser._actions if action.help != "==SUPPRESS=="]
    return [(action.option_strings[-1], action.help or "") for action in shown if action.option_strings]


class _Place:
    """The place at the end of a command line: what the words before it leave open."""

    def __init__(self, noun: str, verb: str, rest: Sequence[str], parser: argparse.ArgumentParser) -> None:
        self.noun = noun
        self.verb = verb
        self.rest = rest
        self.parser = parser
        self.option: argparse.Action | None = None
        """The option whose value comes next, or may."""

        self.positionals = 0
        self.only_positionals = False
        for word in rest:
            self._pass(word)

    def _pass(self, word: str) -> None:
        if self.only_positionals:
            self.positionals += 1
        elif word == "--":
            self.option, self.only_positionals = None, True
        elif word.startswith("-") and word != "-":
            name, equals, _ = word.partition("=")
            action = self.parser._option_string_actions.get(name)
            self.option = action if action is not None and not equals and action.nargs != 0 else None
        elif self.option is not None:
            self.option = self.option if self.option.nargs in ("+", "*") else None
        else:
            self.positionals += 1
            positional = self._find_positional(self.positionals - 1)
            # A program's own options follow.
            self.only_positionals = positional is not None and positional.nargs == "..."

    def _find_positional(self, index: int) -> argparse.Action | None:
        positionals = [action for action in self.parser._actions if not action.option_strings]
        many = [one for one in positionals if one.nargs in ("*", "+", "...")]
        return positionals[index] if index < len(positionals) else (many[-1] if many else None)

    def complete(self, current: str) -> Answer:
        is_option = current.startswith("-") and not self.only_positionals
        name, equals, value = current.partition("=")
        action = self.parser._option_string_actions.get(name)
        if is_option and equals and action is not None:
            found = self._complete_value(action, value)
            return found._replace(words=tuple((f"{name}={word}", text) for word, text in found.words))
        if is_option:
            return _match(current, _list_options(self.parser))
        if self.option is not None:
            return self._complete_value(self.option, current)
        positional = self._find_positional(self.positionals)
        if positional is None:
            return _match(current, _list_options(self.parser))
        return self._complete_value(positional, current)

    def _complete_value(self, action: argparse.Action, current: str) -> Answer:
        if action.choices is not None:
            return _match(current, [(str(choice), "") for choice in action.choices])
        if action.nargs == "...":
            started = self.positionals > 0
            return Answer(FILES if started or "/" in current else PROGRAMS)
        kind = self._find_kind(action)
        if kind in (FILES, FOLDERS):
            return Answer(kind)
        return _match(current, [(name, "") for name in self._list_names(kind)])

    def _find_kind(self, action: argparse.Action) -> str:
        """Return the kind of names that a value may be; empty for none."""
        is_name = action.dest in ("given", "name") or (
            not action.option_strings and (action.metavar in _NAME_WORDS or action.dest in ("names", "job"))
        )
        if not is_name:
            return _BY_DESTINATION.get(action.dest, "")
        if self.verb in _NEW_NAMES or self.noun in ("run", "plan", "sweep"):
            return ""
        return self.noun if self.noun in (*_ASSETS, "compute", "workspace") else "job"

    def _list_names(self, kind: str) -> list[str]:
        with enter_workspace(self._find_option("-w", "--workspace-name", "--workspace")):
            return [name for name in self._list_all(kind) if _PLAIN_NAME.fullmatch(name)]

    def _list_all(self, kind: str) -> Iterable[str]:
        from drumline.contract import folder
        from drumline.store.asset_versions import LATEST, Records

        if kind == "job":
            return _list_jobs()
        if kind == "compute":
            from drumline.control.machine import computes

            return [computes.LOCAL, *computes.names()]
        if kind == "workspace":
            return folder.workspace_names()
        if kind == "experiment":
            from drumline.control.jobs import job_folders

            return job_folders.experiments()
        if kind == "variable":
            return os.environ
        if not kind:
            return ()
        homes = dict.fromkeys((folder.home(), folder.base_home()))
        if kind in _ASSETS:
            return sorted({name for home in homes for name in Records(home, kind).names()})
        # The versions or the labels of the asset that the command line names.
        first = next((word for word in self.rest if not word.startswith("-")), "")
        name = self._find_option("-n", "--name") or first
        if kind not in ("version", "label") or self.noun not in _ASSETS or not _PLAIN_NAME.fullmatch(name):
            return ()
        records = [Records(home, self.noun) for home in homes]
        versions = dict.fromkeys(version for one in records for version in one.versions(name))
        if kind == "version" or not versions:
            return versions
        return dict.fromkeys((LATEST, *(label for one in records for label in one.labels(name))))

    def _find_option(self, *names: str) -> str | None:
        for word, value in zip(self.rest, [*self.rest[1:], ""], strict=False):
            name, equals, inside = word.partition("=")
            if name in names:
                return inside if equals else value
        return None


def _list_jobs() -> list[str]:
    """Return the names of jobs, newest first."""
    from drumline.contract import folder
    from drumline.control.jobs.lookup import all_names

    jobs = os.path.join(folder.home(), "jobs")

    def find_age(name: str) -> float:
        try:
            return -os.lstat(os.path.join(jobs, name)).st_mtime
        except OSError:
            return 0.0

    return sorted(all_names(), key=find_age)


# parsers


def read_parser(module: str, verb: str = "") -> Parser | None:
    """
    Return the parser of the command in a module. ``verb``: the one whose arguments it has, where it has verbs.

    None for a verb that is refused.
    """
    # Help makes a command make its parser alone: nothing is forked or imported for what it would do.
    words = [verb, "--help"] if verb else ["--help"]
    Parser.is_wanted = True
    try:
        import_module(module).main(words)
    except ParserMade as made:
        return made.parser
    except UsageError:
        return None
    finally:
        Parser.is_wanted = False
    return None


def find_verbs(parser: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    """Return the parsers of a parser's verbs; empty if it has none."""
    for action in parser._actions:
        if action.nargs == "A..." and isinstance(action.choices, dict):
            return action.choices
    return {}


def describe_verbs(parser: argparse.ArgumentParser) -> dict[str, str]:
    """Return the line of help of each verb, in order."""
    for action in parser._actions:
        if action.nargs == "A...":
            described = getattr(action, "_choices_actions", [])
            return {one.dest: one.help or "" for one in described}
    return {}
