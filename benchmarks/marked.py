"""Parts of a document that a program writes: between ``<!-- begin: NAME -->`` and ``<!-- end: NAME -->``."""


class NotMarkedError(Exception):
    """A document without the two marks of a name, or with more than one of them."""


def replaced(text: str, name: str, content: str) -> str:
    """The text with that content between the marks of that name. Raises NotMarkedError."""
    begin, end = f"<!-- begin: {name} -->\n", f"<!-- end: {name} -->\n"
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise NotMarkedError(f"one {begin.strip()} and, after it, one {end.strip()} are needed")
    before, rest = text.split(begin)
    return f"{before}{begin}{content.strip()}\n{end}{rest.split(end)[1]}"


def deeper(text: str, levels: int) -> str:
    """The text with all headings so many levels further down."""
    return "".join(
        "#" * levels + line if line.startswith("#") else line for line in text.splitlines(keepends=True)
    )
