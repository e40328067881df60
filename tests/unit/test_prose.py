"""
The English of the documents and of ``--help``: sentences have a thing with a name for a subject. That of docstrings:
a function's begins with a verb, and any is understood without the name that it is about.
"""

import prose
import pytest

OF_ALL = 0.03
OF_A_PAGE = 0.06
OF_DOCSTRINGS = 0.03
COUNTS = prose.counts()
OPENINGS = prose.openings()


def test_few_subjects_are_free_relatives_or_vague_pronouns():
    vague = sum(len(found) for found, _ in COUNTS.values())
    assert vague < OF_ALL * sum(number for _, number in COUNTS.values())


@pytest.mark.parametrize("page", COUNTS)
def test_no_page_has_many_of_them(page):
    found, number = COUNTS[page]
    assert len(found) <= max(1, OF_A_PAGE * number), "\n".join(found)


@pytest.mark.parametrize(
    "text",
    [
        "What is elsewhere is fetched before the ranks start.",
        "- **Whoever is killed**, whatever was started for the build ends.",
        "The signal goes down: who handles it decides.",
        "| `USED` | what it has forked so far |",
        "It goes when the attempt ends, and nobody has to look.",
    ],
)
def test_such_a_subject_is_found(text):
    assert any(prose.is_vague(sentence) for sentence in prose.sentences(text))


@pytest.mark.parametrize(
    "text",
    [
        "Remote inputs are downloaded once.",
        "The error says what was wrong, and who owns the file.",
        "What does a launch cost?",
        "```text\nWhat took longest: the imports\n```",
        "<!-- begin: x -->\nWhat a program wrote here\n<!-- end: x -->",
    ],
)
def test_no_other_is(text):
    assert not any(prose.is_vague(sentence) for sentence in prose.sentences(text))


def test_help_and_pages_are_read():
    assert {"README.md", "docs/howto/running.md", "--help"} <= set(COUNTS)
    assert all(number for _, number in COUNTS.values())
    assert COUNTS["--help"][1] > 100


@pytest.mark.parametrize("is_function", [True, False])
def test_first_lines_of_docstrings_stand_alone(is_function):
    alike = [one for one in OPENINGS if one.is_function == is_function]
    fragments = [f"{one.place}: {one.text}" for one in alike if prose.is_fragment(one)]
    assert len(alike) > 1000
    assert len(fragments) <= OF_DOCSTRINGS * len(alike), "\n".join(fragments)


@pytest.mark.parametrize(
    "text",
    [
        "The jobs of a home, newest first.",
        "Of a part framework-NAME; empty for others.",
        "Raises SpecError.",
        "Whether it has ended.",
        "``rank``: that which began.",
        ">>> format_size(0)",
    ],
)
def test_such_a_first_line_of_a_function_is_found(text):
    assert prose.is_fragment(prose.Opening("", True, text))


@pytest.mark.parametrize("text", ["What a rank uses.", "``rank``: that which began.", "After it hung."])
def test_such_a_first_line_of_a_class_is_found(text):
    assert prose.is_fragment(prose.Opening("", False, text))


@pytest.mark.parametrize(
    ("is_function", "text"),
    [
        (True, "Return the jobs of a home, newest first."),
        (True, "Wait, but not for long."),
        (False, "The jobs of a home, newest first."),
        (False, "``drumline ps``: the jobs that run and wait."),
        (False, "Whole files, written at once."),
    ],
)
def test_no_other_first_line_is(is_function, text):
    assert not prose.is_fragment(prose.Opening("", is_function, text))
