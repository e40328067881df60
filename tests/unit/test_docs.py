"""What the documents say is so."""

import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    *ROOT.glob("*.md"),
    *ROOT.glob("docs/**/*.md"),
    *ROOT.glob("examples/**/*.md"),
    *ROOT.glob("benchmarks/**/*.md"),
]
ALL = "\n".join(page.read_text() for page in PAGES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_to_a_file_leads_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), target


def anchors(page):
    """Of its headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_to_a_heading_leads_to_one(page):
    for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text()):
        other = page.parent / target if target else page
        assert other.suffix != ".md" or anchor in anchors(other), f"{target}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_import_line_in_a_document_works(page):
    lines = re.findall(
        r"(?:^|`)(from drumline[\w.]* import [\w, ]+?)(?=`|$|  #)", page.read_text(), re.MULTILINE
    )
    for line in lines:
        exec(line, {})


REFUSED = re.compile(r"^<!-- exit code \d+ -->\n```.*?^```", re.MULTILINE | re.DOTALL)
"""A block of commands that are wrong on purpose; ``test_guide.py`` runs them."""

COMMAND = re.compile(r"(?:^|[`$(]|\$ )drumline ([a-z]+) ([a-z][a-z-]*)\b([^`\n|#)]*)", re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_in_a_document_is_one(page):
    from drumline.cli.arguments import Parser, add_azure
    from drumline.cli.main import COMMANDS, SHORT, find_module

    for noun, verb, rest in COMMAND.findall(REFUSED.sub("", page.read_text())):
        if noun == "help":
            assert verb in COMMANDS, f"drumline help {verb}"
            continue
        assert noun in COMMANDS, f"drumline {noun}"
        verbs = getattr(import_module(find_module(noun)), "VERBS", None)
        if verbs is None or noun in SHORT:
            continue
        assert verb in verbs, f"drumline {noun} {verb}"
        parser = Parser(prog=verb)
        verbs[verb][1](parser)
        add_azure(parser)
        for flag in re.findall(r"(?<![\w='\"-])--?[a-z][\w-]*", rest):
            assert flag in parser._option_string_actions, f"drumline {noun} {verb} {flag}"


def test_every_verb_is_in_the_documents():
    from drumline.cli.jobs.job import VERBS
    from drumline.cli.main import COMMANDS

    for command in COMMANDS:
        assert f"drumline {command}" in ALL, command
    for verb in VERBS:
        assert re.search(rf"`?(job )?{verb}\b", ALL), verb


def test_every_variable_of_the_contract_is_in_its_page():
    from planning import environments, plan

    page = (ROOT / "docs" / "reference" / "environment-variables.md").read_text()
    seen = {
        name
        for variables in environments(plan(distribution={"type": "pytorch"})).values()
        for name in variables
    }
    for name in seen | {"TF_CONFIG", "TMPDIR"}:
        assert name in page, name


DESIGN = [
    "ARCHITECTURE.md",
    *(f"docs/explanation/{name}.md" for name in ("decisions", "verdict", "containment")),
]


@pytest.mark.parametrize("page", [*DESIGN, "docs/reference/glossary.md"])
def test_every_file_named_in_the_architecture_is_there(page):
    page = (ROOT / page).read_text()
    source = ROOT / "src" / "drumline"
    for name in re.findall(r"`((?:[a-z0-9_]+/)+[a-z0-9_]*(?:\.py)?)", page):
        places = (source / name, source / "engines" / name, ROOT / name)
        assert any(place.exists() for place in places), name


def test_every_function_named_in_the_architecture_is_in_its_file():
    page = "\n".join((ROOT / name).read_text() for name in DESIGN)
    sources = {path: path.read_text() for path in ROOT.glob("src/drumline/**/*.py")}
    for name, function in re.findall(r"`([\w/]+\.py): [\w.]*?(\w+)`", page):
        texts = [text for path, text in sources.items() if path.match(name)]
        assert any(re.search(rf"\b{function}\b", text) for text in texts), f"{name}: {function}"


@pytest.mark.parametrize("page", ["docs/tutorials/quickstart.md"])
def test_a_job_file_in_a_document_is_valid(page, tmp_path):
    from drumline.spec.jobs.validate import validate
    from drumline.spec.load import load_job

    for block in re.findall(r"```yaml\n(# job\.yml.*?)```", (ROOT / page).read_text(), re.DOTALL):
        (tmp_path / "src").mkdir(exist_ok=True)
        path = tmp_path / "job.yml"
        path.write_text(block)
        assert validate(load_job(path)).error_messages == {}
