"""The rules of ``drumline lint``: each finds its trap at its place, and leaves alone what only looks like it."""

import re
from pathlib import Path

import pytest

from drumline.control.lint import traps
from drumline.control.lint.programs import Target
from drumline.spec.reading.files import read_yaml

HERE = Target(True, 0)
ROOT = Path(__file__).parents[3]


def lint(folder, text, files=(), target=HERE):
    for name, content in dict(files).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content.encode())
    (folder / "job.yml").write_text(text)
    return traps.find_traps(read_yaml(str(folder / "job.yml")), str(folder), target)


PYTORCH = "distribution: {type: pytorch, process_count_per_instance: 2}\n"
CODE = "code: src\ncommand: python train.py\n"
TRUE = {
    "a comment in folded lines": (
        "comment-in-command",
        3,
        "command: >\n  python train.py\n  --lr 0.1 # the best\n  --epochs 3\n",
        {},
    ),
    "an option alone": ("line-is-a-command", 3, "command: |\n  python train.py\n  --epochs 3\n", {}),
    "an override of Hydra's alone": (
        "line-is-a-command",
        3,
        "command: |\n  python train.py\n  trainer.max_epochs=3\n",
        {},
    ),
    "a blank after a backslash": (
        "broken-continuation",
        2,
        "command: |\n  python train.py \\ \n  --epochs 3\n",
        {},
    ),
    "a backslash in folded lines": (
        "broken-continuation",
        2,
        "command: >\n  python train.py \\\n  --epochs 3\n",
        {},
    ),
    "nodes without a distribution": (
        "nodes-without-distribution",
        2,
        "command: python train.py\nresources: {instance_count: 2}\n",
        {},
    ),
    "an exported address": (
        "rank-variable",
        2,
        PYTORCH + "command: export MASTER_ADDR=localhost && python train.py\n",
        {},
    ),
    "loopback between nodes": (
        "rank-variable",
        3,
        "distribution: {type: pytorch}\nresources: {instance_count: 2}\n"
        "environment_variables: {NCCL_SOCKET_IFNAME: lo}\ncommand: python train.py\n",
        {},
    ),
    "a token": (
        "secret-in-file",
        2,
        "command: python train.py\nenvironment_variables: {HF: hf_abcdefghijklmnopqrstuvwxyz}\n",
        {},
    ),
    "a key by its name": (
        "secret-in-file",
        2,
        "command: python train.py\nenvironment_variables: {WANDB_API_KEY: 0123456789abcdef0123}\n",
        {},
    ),
    "a password": (
        "secret-in-file",
        1,
        "environment_variables: {DB_PASSWORD: correcthorse}\ncommand: x\n",
        {},
    ),
    "a token in the command": (
        "secret-in-file",
        1,
        "command: python train.py --token ghp_abcdefghijklmnopqrstuvwxyz0123456789\n",
        {},
    ),
    "a placeholder": (
        "unfilled-placeholder",
        2,
        "command: python train.py\ncompute: azureml:<CLUSTER>\n",
        {},
    ),
    "a placeholder in a value": (
        "unfilled-placeholder",
        2,
        "command: python train.py ${{inputs.a}}\ninputs: {a: <your-path>}\n",
        {},
    ),
    "an input that nothing names": (
        "unused-input",
        3,
        "command: python train.py\ninputs:\n  lr: 0.1\n",
        {},
    ),
    "an output that nothing names": (
        "unused-input",
        3,
        "command: python train.py\noutputs:\n  model: {type: uri_folder}\n",
        {},
    ),
    "an input that no step names": (
        "unused-input",
        3,
        "type: pipeline\ninputs:\n  lr: 0.1\njobs:\n  a: {type: command, command: python train.py}\n",
        {},
    ),
    "single braces": (
        "single-braces",
        2,
        "$schema: x\ncommand: python train.py {inputs.lr}\ninputs: {lr: 1}\n",
        {},
    ),
    "single braces in a step": (
        "single-braces",
        4,
        "type: pipeline\njobs:\n  a:\n    command: python train.py {inputs.lr}\n    inputs: {lr: 1}\n",
        {},
    ),
    "a script that is not there": ("missing-script", 2, CODE, {"src/main.py": ""}),
    "a script that is left out": (
        "missing-script",
        2,
        CODE,
        {"src/train.py": "", "src/.amlignore": "# mine\ntr*.py\n"},
    ),
    "a script that is not executable": (
        "missing-script",
        2,
        "code: src\ncommand: ./run.sh\n",
        {"src/run.sh": "#!/bin/sh\n"},
    ),
    "ends of lines of Windows": (
        "carriage-returns",
        2,
        "code: src\ncommand: bash run.sh\n",
        {"src/run.sh": "python train.py\r\n"},
    ),
    "a package that is left out": (
        "ignored-import",
        2,
        CODE,
        {
            "src/train.py": "import os\nfrom lib.data import load\n",
            "src/lib/data.py": "",
            "src/.gitignore": "lib/\n",
        },
    ),
    "a module of a module": (
        "ignored-import",
        1,
        CODE,
        {
            "src/train.py": "import a\n",
            "src/a.py": "import b, c\n",
            "src/c.py": "",
            "src/.gitignore": "c.py\n",
        },
    ),
    "an argument that nobody gives": (
        "local-rank-argument",
        1,
        PYTORCH + CODE,
        {"src/train.py": "parser.add_argument('--local_rank', type=int, default=0)\n"},
    ),
    "nccl without a GPU": (
        "nccl-without-gpu",
        1,
        PYTORCH + CODE,
        {"src/train.py": "dist.init_process_group('nccl')\n"},
    ),
    "a mount of another machine": (
        "path-of-another-machine",
        1,
        "command: python train.py --data /mnt/none/such/data\n",
        {},
    ),
    "a drive": (
        "path-of-another-machine",
        2,
        "command: python train.py\nenvironment_variables: {D: 'C:\\data'}\n",
        {},
    ),
}
FALSE = {
    "the last line's comment": "command: >\n  python train.py\n  --epochs 3 # the last\n",
    "a comment in literal lines": "command: |\n  # first\n  python train.py # one\n  python test.py\n",
    "a hash in quotes": "command: >\n  python train.py\n  --name 'a # b'\n  --lr 1\n",
    "a hash in a word": "command: >\n  python train.py\n  --name a#b\n  --lr 1\n",
    "lines that go on": "command: |\n  python train.py \\\n  --epochs 3 &&\n  -x\n",
    "a text of several lines": "command: |\n  python -c '\n  --epochs\n  '\n",
    "a here-document": "command: |\n  cat > a <<EOF\n  --epochs\n  EOF\n",
    "nodes with a launcher": "command: torchrun train.py\nresources: {instance_count: 2}\n",
    "one node": "command: python train.py\nresources: {instance_count: 1}\n",
    "an array": "command: |\n  ARGS=(\n    --lr 0.1\n    --epochs 3\n  )\n  python train.py ${ARGS[@]}\n",
    "branches": "command: |\n  case $1 in\n  --fast) python a.py ;;\n  -x) true ;;\n  esac\n",
    "a command that is an input": "inputs: {cmd: ls}\ncommand: |\n  cd x\n  ${{inputs.cmd}}\n",
    "a program in quotes": "command: \"python -c '\\n--x = 1\\n'\"\n",
    "a backslash in a here-document": "command: |\n  cat > a <<EOF\n  b \\ \n  EOF\n",
    "a script that is looked for": "code: src\ncommand: if [ -f setup.sh ]; then bash setup.sh; fi\n",
    "a script that a notebook becomes": "code: src\ncommand: jupyter nbconvert --to script n.ipynb && python n.py\n",
    "sed": "command: \"sed -i 's:\\\\.txt$::' names\"\n",
    "a folder to be made": "command: python train.py --out /mnt/made-now\n",
    "names that look like secrets": "command: python train.py --run-name sk-learn-random-forest-classifier\n"
    "environment_variables: {TOKEN_FILE: /home/me/secrets/token_file_v2, CACHE_KEY: some_cache_key_name_v2_long}\n",
    "a token of a model": "command: python train.py --token '<IMG_CONTEXT>'\n",
    "a rank with a default": PYTORCH + 'command: RANK="${RANK:-0}" python train.py\n',
    "a rank that is not used": PYTORCH + "command: x\nenvironment_variables: {RANK: 0, A_PASSWORD: $HERE}\n",
    "a rank of no distribution": "command: python train.py\nenvironment_variables: {RANK: 0}\n",
    "a rank that is passed on": PYTORCH + "command: MY=1 RANK=$RANK python train.py\n",
    "a short word": "command: python train.py\nenvironment_variables: {TOKENIZERS: true, API_KEY: none}\n",
    "a file that is read": "command: sort <words.txt >sorted.txt\n",
    "a key of a cache": "command: python train.py\nenvironment_variables: {CACHE_KEY: model-v2-2024-11-27}\n",
    "tokens of a model": "command: python train.py ${{inputs.a}} '<pad>'\ninputs: {a: <s>Say <fim_prefix>}\n",
    "an input of a variable": "command: echo $AZURE_ML_INPUT_a\ninputs: {a: 1}\n",
    "a script that a script makes": "code: src\ncommand: ./other.sh && python made.py\n",
    "HTML": "command: python train.py\ndescription: a <model>\n",
    "an input in an optional part": "command: python train.py $[[--lr ${{inputs.lr}}]]\ninputs: {lr: 1}\n",
    "a script that is made": "code: src\ncommand: git clone x && python train.py\n",
    "a script elsewhere": "code: src\ncommand: cd sub && python train.py\n",
    "a script of no code": "command: python train.py\n",
    "a mount that is there": "command: python train.py /mnt\n",
}


@pytest.mark.parametrize("case", TRUE)
def test_a_trap_is_found_at_its_place(tmp_path, case):
    rule, line, text, files = TRUE[case]
    found = lint(tmp_path, text, files)
    assert [(trap.rule, trap.problem.line) for trap in found] == [(rule, line)], found
    assert found[0].problem.hint
    assert f"[{rule}]" in str(found[0]).splitlines()[0]


@pytest.mark.parametrize("case", FALSE)
def test_what_is_meant_is_left_alone(tmp_path, case):
    (tmp_path / "src").mkdir()
    (tmp_path / "src/other.sh").touch(0o755)
    assert not lint(tmp_path, FALSE[case])


def test_the_caret_is_below_the_comment(tmp_path):
    (trap,) = lint(tmp_path, TRUE["a comment in folded lines"][2])
    assert (trap.problem.line, trap.problem.column, trap.problem.width) == (3, 12, 10)
    assert "hides `--epochs 3`" in trap.problem.what


def test_a_secret_is_not_quoted(tmp_path):
    (trap,) = lint(tmp_path, TRUE["a key by its name"][2])
    assert "0123456789" not in str(trap)


def test_an_ignored_module_is_told_with_its_pattern(tmp_path):
    (trap,) = lint(tmp_path, CODE, TRUE["a package that is left out"][3])
    assert trap.problem.file.endswith("src/train.py")
    assert "line 1 of .gitignore is `lib/`" in trap.problem.what


def test_code_that_goes_its_own_way_is_left_alone(tmp_path):
    scripts = {
        "reads the rank": "p.add_argument('--local_rank', default=int(os.environ['LOCAL_RANK']))\n",
        "asks for CUDA": "b = 'nccl' if torch.cuda.is_available() else 'gloo'\ndist.init_process_group('nccl')\n",
        "imports what is not there": "import lib\n",
        "reads its inputs": "os.environ['AZURE_ML_INPUT_data']\n",
    }
    for text in scripts.values():
        job = PYTORCH + CODE + ("inputs: {data: 1}\n" if "INPUT" in text else "")
        assert not lint(tmp_path, job, {"src/train.py": text})
    assert not lint(
        tmp_path, PYTORCH + CODE, {"src/train.py": "dist.init_process_group('nccl')\n"}, Target(True, 2)
    )


def test_components_and_trials_are_looked_into(tmp_path):
    files = {"parts/train.yml": "command: python train.py\ninputs:\n  lr: {type: number}\n"}
    (of_component,) = lint(tmp_path, "type: pipeline\njobs:\n  a: {component: ./parts/train.yml}\n", files)
    assert of_component.problem.where.endswith("parts/train.yml:3:3")
    (of_trial,) = lint(
        tmp_path,
        "type: sweep\ninputs: {a: 1}\nsearch_space: {}\ntrial:\n  command: >\n    x ${{inputs.a}} # b\n    c\n",
    )
    assert of_trial.problem.path == "trial.command"


def test_a_rule_can_be_turned_off(tmp_path):
    text = TRUE["an option alone"][2]
    assert not lint(tmp_path, text + "drumline: {lint: {ignore: [line-is-a-command]}}\n")
    assert lint(tmp_path, text + "drumline: {lint: {ignore: [unused-input]}}\n")
    (unknown,) = lint(tmp_path, text + "drumline: {lint: {ignore: [line-is-a-command, unused-inputs]}}\n")
    assert (unknown.rule, unknown.problem.hint) == (traps.UNKNOWN_RULE, "did you mean 'unused-input'?")


def test_the_page_has_all_rules():
    page = (ROOT / "docs/reference/lint.md").read_text()
    assert (
        set(re.findall("^### (.+)$", page, re.MULTILINE))
        == {rule for rule, *_ in TRUE.values()}
        == set(traps.RULES)
    )
