"""Files of environment variables."""

import pytest

from drumline.contract.errors import NotFoundError, SpecError
from drumline.control.submission import submitted_secrets

GOOD = r"""
# a comment
A=1
 export B = two words  # a comment
C=a#b
D=
E='$HOME is "literal" \n' # a comment
F="line\nnext \"quoted\" \\ \$HOME \x"
A=2
G=# nothing
"""


def test_the_subset_that_shells_and_dotenv_share(tmp_path):
    path = tmp_path / ".env"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())
    assert submitted_secrets.read(str(path)) == {
        "A": "2",
        "B": "two words",
        "C": "a#b",
        "D": "",
        "E": '$HOME is "literal" \\n',
        "F": 'line\nnext "quoted" \\ $HOME \\x',
        "G": "",
    }


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("TOKEN", "there is no '=' in this line"),
        ("1A=sesame", "not the name of a variable"),
        ("A-B=sesame", "not the name of a variable"),
        ("=sesame", "not the name of a variable"),
        ("A='sesame", "the quote of A is not closed on this line"),
        ('A="sesame\\"', "the quote of A is not closed on this line"),
        ("A='sesame' more", "more text after the quotes of A"),
    ],
)
def test_every_other_line_is_an_error_that_does_not_show_it(tmp_path, line, what):
    path = tmp_path / ".env"
    path.write_text(f"GOOD=1\n{line}\n")
    with pytest.raises(SpecError) as caught:
        submitted_secrets.read(str(path))
    assert what in str(caught.value)
    assert f"{path}:2:1" in str(caught.value)
    assert "sesame" not in str(caught.value)


def test_a_file_that_is_none(tmp_path):
    with pytest.raises(NotFoundError, match="No such file"):
        submitted_secrets.read(str(tmp_path / "missing"))
    (tmp_path / "binary").write_bytes(b"A=\xff")
    with pytest.raises(SpecError, match="not UTF-8"):
        submitted_secrets.read(str(tmp_path / "binary"))
