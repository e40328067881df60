"""``drumline completion``: a script for a shell, which asks ``drumline __complete`` for words."""

from __future__ import annotations

import sys

from drumline.cli.arguments import Parser

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
