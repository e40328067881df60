"""Which commands are one Python program, and that it would be given what bash really gives it."""

import contextlib
import json
import os
import random
import subprocess
import sys

import pytest

from drumline.node.warm import shell_command
from drumline.node.warm.shell_command import NotWarm

TELL = """\
import json, os, sys
told = open("/proc/self/environ", "rb").read().split(b"\\0")[:-1]
env = dict(os.fsdecode(pair).split("=", 1) for pair in told)
json.dump([env, os.getcwd(), sys.orig_argv[1:]], sys.stdout)
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a program in it, and what a rank would have for an environment."""
    folder = tmp_path_factory.mktemp("a place")
    for name in ("bin", "src", "src/in ner", "empty"):
        (folder / name).mkdir()
    os.symlink(folder / "src", folder / "link")
    os.symlink(os.path.realpath(sys.executable), folder / "bin" / "python")
    for name in ("t.py", "src/t.py", "src/in ner/t.py", "it's.py", "mod.py", "empty/notes.txt"):
        (folder / name).write_text(TELL)
    (folder / "run.sh").write_text("python t.py\n")
    os.mkfifo(folder / "pipe.py")
    env = {
        "PATH": f"{folder}/bin:/usr/bin:/bin",
        "HOME": str(folder / "empty"),
        "LC_ALL": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "RANK": "3",
        "TWO": "a  b*",
        "NONE": "",
        "DIR": "src/in ner",
        "ODD.NAME": "kept",
        "QUOTED": "'\"$RANK`x`\\",
        "UNI": "é\udcff\n",
        "A": "old",
        "_": "before",
    }
    return str(folder), env


def parse(place, text, **more):
    folder, env = place
    return shell_command.parse_command(("/bin/bash", "-c", text), {**env, **more}, folder)


SAME = [
    "python t.py",
    "  python\tt.py --lr 0.1 'a b' \"c d\" e\\ f  \n",
    "\n# first\npython t.py # last\n",
    "python -u t.py \\\n  --a 1 \\\n  --b \\\n",
    "python -u \\\nt.py \\\n--a",
    'python -uO -X dev -W error::UserWarning t.py "$RANK" $RANK "$TWO" "$NONE" "${DIR}/x" ${RANK}/${A} x"$A}"y',
    'python t.py "$QUOTED" "$UNI" \'é\u00a0ü\'',
    "python t.py \"a\\$b\\`c\\\\d\\e\" '\"' \"'\" '' \"\" a''b '$RANK' \\$RANK \"\\$RANK\"",
    "python t.py a#b --x=#y '#z' a=b A+=c !y % ^ @ + , '~' \"*{a,b}\" ]}",
    'A=$RANK B="$A-$TWO" C=$TWO D=$NONE python t.py "$A"',
    "PATH=/nowhere:$PATH python t.py",
    'python "it\'s.py"',
    "python -m mod a b",
    "cd src && python t.py",
    'cd "$DIR" && python t.py',
    "cd src; cd ./\ncd 'in ner' && python t.py\n",
    "cd ./link/ && python t.py",
    "set -e\ncd src\nexport A=$RANK B=$A C=$TWO\nC=1\nD=2\nE=3\nexport D=4\npython t.py $E $D\n",
    "set -euo pipefail; A=new && python t.py $A",
    "exec python t.py",
    "cd src; python t.py ; # last",
    "cd src && exec python t.py # gone",
    "cd src # there\n\n# and\nA=b &&\n\n  # then\n  python t.py\n",
    "A=1 B=$A exec python t.py",
    "env A=1 python t.py",
    "exec env -u RANK --unset=TWO -- B-C=1 D= python t.py",
    "X=1 env Y=$RANK Z=2 env -u X python t.py",
    '"$NONE"python t.py',
    "bin/python t.py",
    "export PATH=$PWD/bin && cd src && /usr/bin/env python t.py",
]


SHIM = """\
#!/usr/bin/env bash
export PYENV_ROOT='{root}'
exec "{root}/bin/pyenv" exec "${{0##*/}}" "$@"
"""
PYENV = """\
#!/usr/bin/env bash
test "$1" = exec && shift
echo look >> "$PYENV_ROOT/looks"
export PYENV_VERSION=${PYENV_VERSION:-$(cat .python-version 2>/dev/null || echo one)}
export PYENV_DIR=$PWD
program=$PYENV_ROOT/versions/$PYENV_VERSION/bin/$1
test -x "$program" || { echo "pyenv: version '$PYENV_VERSION' is not installed" >&2; exit 1; }
export PATH=${program%/*}:$PATH
shift
exec "$program" "$@"
"""


def write_program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def pyenv(tmp_path):
    """What pyenv has: a shim, two versions, and a script that finds one of them by the variables and the folder."""
    root = tmp_path / "a pyenv"
    write_program(root / "bin" / "pyenv", PYENV)
    write_program(root / "shims" / "python", SHIM.format(root=root))
    for version in ("one", "two"):
        (root / "versions" / version / "bin").mkdir(parents=True)
        os.symlink(os.path.realpath(sys.executable), root / "versions" / version / "bin" / "python")
    return root


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("python t.py a", "one"),
        ("PYENV_VERSION=two python -u t.py", "two"),
        ("cd src && python t.py", "two"),
        ("exec python t.py", "one"),
    ],
)
def test_a_shim_is_looked_through_to_what_it_starts(place, pyenv, text, version):
    folder, env = place
    with open(f"{folder}/src/.python-version", "w") as file:
        file.write("two\n")
    env = {**env, "PATH": f"{pyenv}/shims:{env['PATH']}"}
    ran = subprocess.run(("/bin/bash", "-c", text), env=env, cwd=folder, stdout=subprocess.PIPE, check=True)
    real_env, _, _ = json.loads(ran.stdout)
    found = parse((folder, env), text)
    assert (
        found.python
        == shell_command.find_interpreter(found)
        == str(pyenv / "versions" / version / "bin" / "python")
    )
    assert found.env == real_env


def test_one_look_through_a_shim_serves_all_ranks(place, pyenv):
    folder, env = place
    env = {**env, "PATH": f"{pyenv}/shims:{env['PATH']}"}
    found = [parse((folder, {**env, "RANK": str(rank)}), "python t.py") for rank in range(4)]
    assert [one.env["RANK"] for one in found] == ["0", "1", "2", "3"]
    assert {one.env["PYENV_VERSION"] for one in found} == {"one"}
    assert (pyenv / "looks").read_text() == "look\n"


def test_a_shim_that_finds_nothing_says_why(place, pyenv):
    folder, env = place
    with pytest.raises(NotWarm, match="finds no Python: pyenv: version 'none' is not installed"):
        parse((folder, {**env, "PATH": f"{pyenv}/shims:/usr/bin:/bin"}), "PYENV_VERSION=none python t.py")


@pytest.mark.parametrize("text", SAME)
def test_what_python_gets_is_what_bash_gives_it(place, text):
    folder, env = place
    ran = subprocess.run(("/bin/bash", "-c", text), env=env, cwd=folder, stdout=subprocess.PIPE, check=True)
    real_env, real_cwd, real_words = json.loads(ran.stdout)
    found = parse(place, text)
    assert int(real_env.pop("SHLVL")) - int(found.env.pop("SHLVL")) in (0, ";" in text or "\n" in text)
    assert found.env == real_env
    assert os.path.samefile(found.cwd, real_cwd)
    assert [*found.flags, *found.target, *found.args] == real_words


@pytest.mark.parametrize(
    "given",
    [
        {"SHLVL": "7"},
        {"PWD": "/nowhere", "OLDPWD": "/nowhere"},
        {"PWD": "link/..", "OLDPWD": "/usr"},
        {"HOSTNAME": "h", "TERM": "t", "COLUMNS": "7", "1X": "y", "LINES": "q"},
    ],
)
def test_variables_that_the_shell_looks_at(place, given):
    test_what_python_gets_is_what_bash_gives_it((place[0], {**place[1], **given}), "cd src && python t.py")
    test_what_python_gets_is_what_bash_gives_it((place[0], {**place[1], **given}), "python t.py")


def test_the_folder_keeps_the_name_that_the_variable_has(place):
    folder, env = place
    linked = {**env, "PWD": f"{folder}/link"}
    test_what_python_gets_is_what_bash_gives_it((f"{folder}/src", linked), "python t.py")
    test_what_python_gets_is_what_bash_gives_it((f"{folder}/src", linked), "cd 'in ner' && python t.py")
    unclean = {**env, "PWD": f"{folder}/src/../src"}
    test_what_python_gets_is_what_bash_gives_it((f"{folder}/src", unclean), "python t.py")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("python t.py | cat", "only the shell"),
        ("python t.py || true", "only the shell"),
        ("python t.py > log", "only the shell"),
        ("python t.py 2>&1", "only the shell"),
        ("python t.py <<E\nE", "only the shell"),
        ("python t.py <(ls)", "only the shell"),
        ("python t.py &", "only the shell"),
        ("python t.py; ls", "more than one program"),
        ("python t.py && python t.py", "more than one program"),
        ("ls\npython t.py", "more than one program: ls"),
        ("source run.sh && python t.py", "more than one program: source"),
        (". ./run.sh\npython t.py", "more than one program"),
        ("(python t.py)", "only the shell"),
        ("{ python t.py; }", "only the shell"),
        ("python() { :; }\npython t.py", "only the shell"),
        ("alias python=ls\npython t.py", "more than one program: alias"),
        ("shopt -s extglob\npython t.py", "more than one program"),
        ("for i in 1 2; do python t.py; done", "more than one program"),
        ("if true; then python t.py; fi", "more than one program"),
        ("time python t.py", "not Python but time"),
        ("! python t.py", "not Python but !"),
        ("nohup python t.py", "not Python but nohup"),
        ("torchrun t.py", "not Python but torchrun"),
        ("bash run.sh", "not Python but bash"),
        ("%/python t.py", "not Python but %/python"),
        ("./run.sh", "not Python but ./run.sh"),
        ("command python t.py", "not Python but command"),
        ("eval python t.py", "not Python but eval"),
        ("python t.py $(ls)", "only the shell"),
        ('python t.py "$(ls)"', "only the shell"),
        ("python t.py `ls`", "only the shell"),
        ("python t.py ${X:-$(ls)}", "only the shell"),
        ("python t.py $((x=1))", "only the shell"),
        ("python t.py ${X:=y}", "only the shell"),
        ("python t.py ${!RANK}", "only the shell"),
        ("python t.py ${X[$(ls)]}", "only the shell"),
        ("python t.py $RANDOM", "$RANDOM"),
        ("python t.py ${BASHPID}", "$BASHPID"),
        ("python t.py $$", "only the shell"),
        ("python t.py $_", "$_"),
        ("python t.py $IFS", "$IFS"),
        ('python t.py $"x"', '$"'),
        ("set -u; python t.py $UNSET", "only the shell"),
        ("python t.py $TWO", "without quotes"),
        ("python t.py $NONE", "without quotes"),
        ("python t.py *.py", "only the shell"),
        ("python t.py ~/x", "only the shell"),
        ("cd .. && python t.py", "a cd"),
        ("export A && python t.py", "more than one program"),
        ("python t.py ${NONE:-none}", "only the shell"),
        ("python t.py $SHLVL", "only the shell"),
        ("set -x; python t.py", "set -x"),
        ("set; python t.py", "more than one program"),
        ("set -o posix; python t.py", "set -o posix"),
        ("IFS=: python t.py", "sets IFS"),
        ("A+=b python t.py", "A+=b"),
        ("A[0]=b python t.py", "only the shell"),
        ("PWD=/ python t.py", "sets PWD"),
        ("BASH_ENV=x env python t.py", "sets BASH_ENV"),
        ("HOME=/x B=~ python t.py", "only the shell"),
        ("export -n A; python t.py", "export -n"),
        ("export $A; python t.py", "export $A"),
        ("A=1 cd src; python t.py", "more than one"),
        ("cd; python t.py", "more than one program"),
        ("cd - && python t.py", "a cd"),
        ("cd -P src && python t.py", "more than one program"),
        ("cd nowhere; python t.py", "no folder nowhere"),
        ('cd "$NONE" && python t.py', "a cd"),
        ("cd $DIR && python t.py", "without quotes"),
        ("cd ../nowhere && python t.py", "a cd"),
        ("cd src", "not Python but cd src"),
        ("A=b", "does not end with a program"),
        ("", "not complete"),
        ("# python t.py", "not complete"),
        ("cd src &&", "not complete"),
        ("A=$RANK python t.py \\", "only the shell"),
        ("cd src ;; python t.py", "not complete"),
        ("cd src\n; python t.py", "not complete"),
        ("python 't.py", "only the shell"),
        ('python "t.py', "only the shell"),
        ("python t.\\\npy", "only the shell"),
        ("python t.py \x01", "control characters"),
        ("python t.py \0", "control characters"),
        ("python t.py\r", "not named like a script"),
        ("python t.py " + "x" * (1 << 17), "very long"),
        ("exec -a x python t.py", "not Python but -a"),
        ("exec -c python t.py", "not Python but -c"),
        ("env -i python t.py", "env -i"),
        ("env -S 'python t.py'", "env -S"),
        ("env -C src python t.py", "env -C"),
        ("env =x python t.py", "without a name"),
        ("env -u A=B python t.py", "env -u"),
        ('python t.py "$A\\\nB"', "only the shell"),
        ("cd src\npython t.py\n ", "not complete"),
        ('python t.py "' + "$MODEL_NAME" * 40 + '$(date)"', "only the shell"),
        ("env A=b", "without a program"),
        ("empty/env python t.py", "env is empty/env"),
        ("python", "no script"),
        ("python -u", "no script"),
        ("python -c 'import torch'", "-c"),
        ("python -", "-"),
        ("python -i t.py", "-i"),
        ("python -uE t.py", "-uE"),
        ("python -I t.py", "-I"),
        ("python -S t.py", "-S"),
        ("python --help", "--help"),
        ("python -X importtime t.py", "-X importtime"),
        ("python -Ximporttime=2 t.py", "-X importtime"),
        ("python -X", "without a value"),
        ("python -um mod", "-um"),
        ("python -m", "without the name"),
        ("python -m ../x", "without the name"),
        ("python run.sh", "not named like"),
        ("python src", "not named like"),
        ("python pipe.py", "is not a file"),
        ("python no.py", "is not a file"),
        ("pypy t.py", "not Python but pypy"),
        ("python2 t.py", "not Python but python2|not on PATH"),
        ("PYTHONINSPECT=1 python t.py", "PYTHONINSPECT is set"),
        ("PATH=src:/bin python t.py", "not absolute"),
        ("PATH=/bin: python3.77 t.py", "not absolute"),
        ("PATH=/nowhere python t.py", "not on PATH"),
    ],
)
def test_what_is_not_warm(place, text, reason):
    with pytest.raises(NotWarm) as raised:
        parse(place, text)
    assert any(part in str(raised.value) for part in reason.split("|"))
    assert "\n" not in str(raised.value) or "\n" in text


@pytest.mark.parametrize(
    "name",
    ["BASH_ENV", "BASH_FUNC_python%%", "SHELLOPTS", "POSIXLY_CORRECT", "IFS", "CDPATH", "RANDOM", "PS4"],
)
def test_a_variable_that_leads_the_shell(place, name):
    with pytest.raises(NotWarm, match="for the shell"):
        parse(place, "python t.py", **{name: "x"})


def test_a_function_that_some_systems_give_every_shell(place):
    assert parse(place, "python t.py", **{"BASH_FUNC_which%%": '() {  /usr/bin/which "$@"\n}'})


def test_a_shell_that_reads_its_settings(place):
    """Debian's bash takes itself for one of sshd's."""
    with pytest.raises(NotWarm, match="bashrc"):
        parse(place, "python t.py", SSH_CLIENT="x")
    assert parse(place, "python t.py", SSH_CLIENT="x", SHLVL="1")


@pytest.mark.parametrize("level", ["", "x", "-4", "999", "99999999999999999999"])
def test_an_odd_level(place, level):
    with pytest.raises(NotWarm, match="SHLVL"):
        parse(place, "python t.py", SHLVL=level)


@pytest.mark.parametrize(
    "text",
    [
        'A="$EVIL" && cd src && exec python t.py "${EVIL}" "$A"',
        """python t.py $RANK '$(touch mark)' "\\$(touch mark)" '`touch mark`'; # `touch mark`""",
        "touch mark && python t.py $RANK",
        "python t.py $RANK && touch mark",
    ],
)
def test_nothing_of_a_command_is_run(place, text):
    folder, env = place
    with contextlib.suppress(NotWarm):
        shell_command.parse_command(("bash", "-c", text), {**env, "EVIL": "a[$(touch mark)]"}, folder)
    assert not os.path.exists(f"{folder}/mark")


def test_a_program_without_a_shell(place):
    folder, env = place
    found = shell_command.parse_command(("python", "-u", "t.py", "$RANK", "a b"), env, folder)
    assert found == shell_command.Program("python", ("-u",), ("t.py",), ("$RANK", "a b"), env, folder)
    assert found.env is not env
    found = shell_command.parse_command(("env", "-u", "A", "B=1", "python", "-m", "mod"), env, folder)
    assert found.env == {**{name: value for name, value in env.items() if name != "A"}, "B": "1"}
    for argv in ((), ("bash", "run.sh"), ("bash", "-c", "python t.py", "x"), ("bash", "-lc", "python t.py")):
        with pytest.raises(NotWarm):
            shell_command.parse_command(argv, env, folder)


def test_resolve(place, tmp_path):
    folder, env = place
    program = shell_command.parse_command(("python", "t.py"), env, folder)
    assert shell_command.find_interpreter(program) == f"{folder}/bin/python"
    assert shell_command.find_interpreter(program._replace(python="bin/python")) == f"{folder}/bin/python"
    (tmp_path / "python").write_text("#!/bin/sh\n")
    os.chmod(tmp_path / "python", 0o755)
    os.symlink("/bin/true", tmp_path / "python3")
    for word, said in (("python", "is a script"), ("python3", "not CPython"), ("python3.77", "not on PATH")):
        with pytest.raises(NotWarm, match=said):
            shell_command.find_interpreter(program._replace(python=word, env={"PATH": str(tmp_path)}))
    with pytest.raises(NotWarm, match="No such file"):
        shell_command.find_interpreter(program._replace(python="/nowhere/python"))


PIECES = [
    *"ab=:,.-+/@%^!]}é\u00a0\r",
    " ",
    "\t",
    "a#",
    "\\ ",
    "\\'",
    '\\"',
    "\\\\",
    "\\$",
    "\\a",
    " \\\n ",
    "''",
    "'a  b'",
    "'$(x)\"`'",
    '"a  b"',
    '"\\a\\$\\"\\\\\'"',
    '"a\\\nb"',
    '"#"',
    '"*{a,b}~"',
    "'\n'",
]


def test_words_without_expansions_are_read_as_bash_reads_them(place):
    """A thousand commands made of pieces, all told by one bash."""
    folder, env = place
    dice = random.Random(8)
    texts = [
        "x " + "".join(dice.choices(PIECES, k=dice.randint(1, 12))) + dice.choice(("", "  # it's"))
        for _ in range(1000)
    ]
    script = "x() { printf '%s\\0' $# \"$@\"; }\n" + "".join(f"{text}\n" for text in texts)
    ran = subprocess.run(
        ("/bin/bash", "-c", script), stdout=subprocess.PIPE, check=True, env={"LC_ALL": "C.UTF-8"}
    )
    said = iter(ran.stdout.decode().split("\0"))
    for text in texts:
        real = [next(said) for _ in range(int(next(said)))]
        program = shell_command.parse_command(("bash", "-c", f"python t.py{text[1:]}"), env, folder)
        assert list(program.args) == real, text
