"""Words of other tools: the hint names a command that exists and does the same."""

import shlex

import pytest

from drumline.cli import other_words
from drumline.cli.arguments import _find_similar
from drumline.cli.guide import foreign_words
from drumline.cli.guide.completion import describe_verbs, find_verbs, read_parser
from drumline.cli.main import COMMANDS, list_modules, main

MODULES = list_modules()
NOUNS = [noun for noun, module in MODULES.items() if describe_verbs(read_parser(module))]

SAME = {
    "cancel": "stop kill end abort terminate scancel",
    "list": "ls list ps status squeue queue history nodes hosts sinfo",
    "show": "status describe inspect info get view",
    "stream": "log logs tail follow watch attach join wait",
    "logs": "log logs tail follow watch attach",
    "wait": "join wait",
    "delete": "rm remove del delete",
    "archive": "rm remove del delete hide",
    "create": "submit sbatch apply create start launch up hpo hparams",
    "rerun": "retry restart resubmit again",
    "diff": "compare",
    "exec": "exec ssh shell sh",
    "open": "ui dashboard web open",
    "download": "cp pull fetch",
    "validate": "check",
    "lint": "check",
    "top": "stats usage htop nvidia-smi",
    "stacks": "stack pystack py-spy",
    "metrics": "plot chart curves",
    "list-nodes": "nodes hosts sinfo",
    "plan": "dryrun dry-run",
    "configure": "config set",
    "help": "man manual usage",
    "prune": "clean cleanup gc",
    "cache": "clean cleanup gc du disk",
    "df": "du disk",
    "ps": "ps",
    "mlflow": "ui dashboard web open",
    "tensorboard": "board tb",
    "sweep": "hpo hparams",
}
"""By our verb the words that mean it; written here again, so that a slip in the table shows."""

WORDS = [word for meaning in foreign_words.MEANINGS for word in meaning.words.split()]


def parse(command):
    """Parse a command without running it. Raises UsageError."""
    noun, *rest = shlex.split(command)
    if noun == "help":
        return "help"
    assert noun in COMMANDS, command
    parser = read_parser(MODULES[noun], rest[0] if rest else "")
    verbs = find_verbs(parser)
    if not verbs:
        if "--help" not in rest:
            parser.parse_args(rest)
        return noun
    assert rest[0] in verbs, command
    verbs[rest[0]].parse_args(rest[1:])
    return noun if noun in ("cache", "prune") else rest[0]


@pytest.mark.parametrize("rest", [[], ["calm_drum"], ["-n", "calm_drum"], ["job.yml"]])
def test_a_hint_is_a_command_that_means_the_same(rest):
    for word in WORDS:
        command = foreign_words.find_command([word, *rest], MODULES)
        if not command:
            # The verb that it stands for is not there.
            assert foreign_words.suggest([word, *rest], MODULES) == "drumline --help lists all commands"
        elif command.startswith("run -- "):
            assert word in SAME["create"]
            assert command.removeprefix("run -- ") == shlex.join(rest)
        else:
            assert word in SAME[parse(command)].split(), command
            takes_name = "NAME" in "".join(meaning_of(word).commands)
            assert "calm_drum" not in rest or "calm_drum" in command or not takes_name


def meaning_of(word):
    return next(one for one in foreign_words.MEANINGS if word in one.words.split())


@pytest.mark.parametrize("noun", NOUNS)
def test_a_hint_for_a_verb_names_one_of_that_command(noun):
    parser = read_parser(MODULES[noun])
    verbs = describe_verbs(parser)
    for word in {*other_words.VERBS, *(word for _, word in other_words._TEXTS)} - set(verbs):
        hint = _find_similar(f"argument VERB: invalid choice: {word!r} (choose from ...)", parser)
        meant = other_words._IN_COMMAND.get(noun, {}).get(word, other_words.VERBS.get(word, ()))
        known = [verb for verb in meant if verb in verbs]
        assert hint in {f"did you mean {known[0]!r}?"} if known else {"", other_words.find_text(noun, word)}


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("stop calm_drum", "drumline job cancel calm_drum"),
        ("kill -9 calm_drum", "drumline job cancel NAME"),
        ("list", "drumline job list"),
        ("status", "drumline job list"),
        ("status calm_drum", "drumline job show calm_drum"),
        ("show", "drumline job show NAME"),
        ("cancel calm_drum", "drumline job cancel calm_drum"),
        ("metrics calm_drum", "drumline job metrics calm_drum"),
        ("create -f other.yml", "drumline job create -f other.yml"),
        ("create -f 'my job.yml'", "drumline job create -f 'my job.yml'"),
        ("validate", "drumline job validate -f job.yml"),
        ("submit job.yml", "drumline job create -f job.yml"),
        ("job.yml", "drumline job create -f job.yml"),
        ("launch python train.py --lr 1", "drumline run -- python train.py --lr 1"),
        ("train.py --lr 1", "drumline run -- python train.py --lr 1"),
        ("torchrun --nproc_per_node 4 train.py --lr 1", "drumline run --procs 2 -- python train.py --lr 1"),
        ("attach --type slurm --name gpu", "drumline compute attach --type slurm --name gpu"),
        ("jobs show calm_drum", "drumline job show calm_drum"),
        ("jobs", "drumline job list"),
        ("cluster list-nodes gpu", "drumline compute list-nodes gpu"),
        ("jbo list", "drumline job"),
        ("cancle calm_drum", "drumline job cancel calm_drum"),
    ],
)
def test_a_command_of_another_tool_becomes_ours(typed, meant, capsys):
    assert main(shlex.split(typed)) == 2
    assert capsys.readouterr().err.endswith(f"hint: did you mean {meant!r}?\n")


@pytest.mark.parametrize("typed", ["frobnicate", "login", "-x", ""])
def test_nothing_is_made_up_for_other_words(typed, capsys):
    assert main([typed]) == 2
    assert capsys.readouterr().err.endswith("hint: drumline --help lists all commands\n")


def test_machines_are_not_stopped(capsys):
    assert main(["compute", "stop", "gpu"]) == 2
    assert "not started or stopped" in capsys.readouterr().err


# help


@pytest.mark.parametrize(
    ("typed", "same"),
    [
        ("help", "--help"),
        ("help run", "run --help"),
        ("help job", "job --help"),
        ("help job create", "job create --help"),
        ("job help create", "job create --help"),
        ("job help", "job --help"),
    ],
)
def test_help_of_a_verb_is_the_verbs_help(typed, same, capsys):
    assert main(typed.split()) == 0
    asked = capsys.readouterr().out
    assert main(same.split()) == 0
    assert asked == capsys.readouterr().out
    assert asked.startswith("usage: drumline")


def test_help_of_no_verb_is_an_error(capsys):
    assert main(["help", "job", "stop"]) == 2
    assert (
        "hint: did you mean 'drumline job cancel'? drumline job --help lists the verbs\n"
        in capsys.readouterr().err
    )
    assert main(["help", "stop"]) == 2
    assert "did you mean 'drumline job cancel NAME'?" in capsys.readouterr().err


def test_the_hints_run(cli, tmp_path):
    """What a hint names does its work on a real job."""
    (tmp_path / "job.yml").write_text("command: echo hello\n")
    assert cli("run", "--name", "calm_drum", "--", "true").rc == 0
    for typed in (
        "stop calm_drum",
        "ls",
        "status calm_drum",
        "logs calm_drum",
        "rm calm_drum",
        "check job.yml",
    ):
        command = foreign_words.find_command(typed.split(), MODULES)
        sure = ["--yes"] if command.startswith("job delete") else []
        done = cli(*shlex.split(command), *sure)
        assert done.rc == 0, (command, done.err)


def test_commands_that_are_no_verbs_exist():
    assert set(other_words.COMMANDS) <= COMMANDS.keys()
    assert not set(other_words.COMMANDS) & find_verbs(read_parser(MODULES["job"])).keys()
