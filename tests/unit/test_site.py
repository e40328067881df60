"""The pages of the site, before the generator gets them: all listed, links that lead somewhere, generated parts."""

import re
from typing import get_args

import pytest
import surface as azure_page
from website import check, commands, pages, record, records, surface, terminal, versions

from drumline.cli.main import COMMANDS
from drumline.contract import events


@pytest.fixture(scope="module")
def staged(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    pages.stage(folder / "pages", folder / "site.toml", folder / "site")
    return folder


def test_every_page_is_in_the_navigation(staged):
    listed = set(re.findall(r'"([\w./-]+\.md)"', (staged / "site.toml").read_text()))
    there = {path.relative_to(staged / "pages").as_posix() for path in (staged / "pages").rglob("*.md")}
    assert there == listed


def test_a_page_that_no_index_lists_is_an_error(staged, tmp_path):
    for section in pages.SECTIONS:
        (tmp_path / section).mkdir()
        (tmp_path / section / "index.md").write_text("# Here\n\n- [one](one.md)\n")
        (tmp_path / section / "one.md").write_text("# One\n")
    assert '"howto/one.md"' in pages.navigation(tmp_path)
    (tmp_path / "howto" / "two.md").write_text("# Two\n")
    with pytest.raises(SystemExit, match=r"howto/index\.md does not list howto/two\.md"):
        pages.navigation(tmp_path)


def test_every_link_leads_to_a_page_of_the_site(staged):
    for page in (staged / "pages").rglob("*.md"):
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page}: {target}"


def test_a_link_to_another_file_of_the_repository_becomes_its_path():
    path = pages.ROOT / "docs" / "index.md"
    text = (
        "[the tests](../tests/conftest.py) [`scripts/check`](../scripts/check) [web](https://x.y) [here](#a)"
    )
    assert pages.inside_links(text, path, pages.sources()) == (
        "the tests (`tests/conftest.py`) `scripts/check` [web](https://x.y) [here](#a)"
    )


def test_the_reference_has_every_command_verb_and_option():
    text = commands.reference()
    for command in COMMANDS:
        assert f"## `drumline {command}`" in text
        parser = commands.parser_of(command)
        for verb in commands.verbs_of(parser) if parser else ():
            own = commands.parser_of(command, verb)
            if own is None:
                continue
            assert f"### `drumline {command} {verb}`" in text
            for action in own._actions:
                for option in action.option_strings if action.help != "==SUPPRESS==" else ():
                    assert f"`{option}`" in text or option in ("-h", "--help"), f"{command} {verb} {option}"


@pytest.mark.parametrize("heading", records.JOBS)
def test_the_reference_has_every_key_of_a_file(heading):
    """Those that ``azure-ml.md`` has a row for, but read-only ones; and it says of each what becomes of it."""
    shown = {key.path for key in records.keys_of(records.JOBS[heading], heading)}
    for key in shown:
        assert records.meaning(heading, key) or "." in key, key
    rows = azure_page.verdicts(heading) if heading in azure_page.sections() else {}
    read_only = {"$schema", "id", "status", "creation_context", "log_files", "parameters"}
    elsewhere = ("inputs", "outputs", "services.*.$schema", "services.*.endpoint", "services.*.status")
    for key in rows:
        if key.split(".")[-1] in read_only or key.startswith(elsewhere) or "error_message" in key:
            continue
        assert key in shown or key.split(".")[0] in records._ELSEWHERE, key


def test_the_reference_has_names_events_errors_and_files():
    text = surface.reference()
    for name in (
        "MLClient.jobs",
        "JobOperations.create_or_update",
        "`command`",
        "`SlurmCompute`",
        "`Choice`",
    ):
        assert name in text, name
    assert "`events.jsonl`" in surface.run_folder()
    listed = surface.events()
    assert all(f"`{one.__name__}`" in listed for one in get_args(events.Event))
    assert "| `NotFoundError` | `DrumlineError` | 3 |" in surface.errors()


def test_lists_and_tables_of_github_are_those_of_the_generator():
    text = "Words:\n- one\n  - two\n\n```\nx\n- y\n```\nMore:\n| a |\n| --- |\n| `b\\|c` |\n"
    assert pages.to_python_markdown(text) == (
        "Words:\n\n- one\n    - two\n\n```\nx\n- y\n```\nMore:\n\n| a |\n| --- |\n| `b|c` |\n"
    )


@pytest.mark.parametrize(
    "text",
    [
        '<script src="https://unpkg.com/x.js"></script>',
        '<link rel="stylesheet" href="//fonts.example/a.css">',
        '<link rel="preconnect" href="https://fonts.example">',
        '<img src="https://example.com/pixel.gif">',
        "<style>@import 'https://example.com/a.css'</style>",
        '<p style="background:url(https://example.com/a.png)">x</p>',
        '<pre class="mermaid"></pre>',
        "<p>Words:\n- one</p>",
    ],
)
def test_a_page_that_loads_from_elsewhere_is_found(text):
    assert list(check.of_page(text))


def test_a_page_of_our_own_is_not():
    text = '<link rel="canonical" href="https://x.y/"><a href="https://x.y">x</a><img src="../a.svg"><p>a - b</p>'
    assert not list(check.of_page(text))


def test_versions_are_listed_with_the_newest_first(tmp_path):
    site = tmp_path / "site"
    site.mkdir()
    for name in ("0.1", "0.2", "0.2"):
        (site / "index.html").write_text(name)
        versions.add(site, tmp_path / "all", name)
    assert (tmp_path / "all" / "versions.json").read_text().count("latest") == 1
    assert (tmp_path / "all" / "latest" / "index.html").read_text() == "0.2"
    assert (tmp_path / "all" / "0.1" / "index.html").read_text() == "0.1"
    for name in ("../x", "latest", ""):
        with pytest.raises(SystemExit):
            versions.add(site, tmp_path / "all", name)


@pytest.mark.parametrize("name", record.SCENES)
def test_a_picture_is_of_its_recording(name):
    text = (record.FOLDER / f"{name}.cast").read_text()
    title, shown = record.from_cast(text)
    assert (record.FOLDER / f"{name}.svg").read_text() == terminal.picture(shown, record.COLUMNS, title)
    assert len(text) < 20_000
    assert not re.search(r"/(?:root|home|tmp|work|usr)/", text)
    printed = "".join(part for _, part in shown)
    assert all(command in printed for command in record.SCENES[name].commands)


def test_a_terminal_forgets_what_was_overwritten():
    shown = terminal.history([(0.0, "10 %"), (1.0, "\r\x1b[K\x1b[31m20\x1b[0m %\r\n"), (2.0, "done")])
    texts = [("".join(cell.text for cell in one.cells), one.since, one.until) for one in shown]
    assert texts == [("10 %", 0.0, 1.0), ("20 %", 1.0, 0.0), ("done", 2.0, 0.0)]
    assert shown[1].cells[0].style.color == 31
