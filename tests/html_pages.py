"""Pages of notebooks as tests read them, and texts of jobs that would like to be more than text."""

import re
from html.parser import HTMLParser

HOSTILE = (
    "<script>alert(1)</script>",
    '" onmouseover="alert(1)',
    "' style='x",
    "</div></pre></svg><img src=x onerror=alert(1)>",
    "\x1b]0;title\x07\x1b[31mred\x00\x08",
    "&lt;b&gt; &amp;",
    "\ud800 \u202e gnp.exe",
    "${{inputs.x}} {x} %s `x`",
)
TAGS = {
    "div", "span", "strong", "code", "pre", "table", "thead", "tbody", "tr", "th", "td",
}  # fmt: skip
ATTRIBUTES = {"style", "title"}


class Page(HTMLParser):
    """Fails for a tag, an attribute or a style that pages do not have, and for what is not closed."""

    def __init__(self, markup):
        super().__init__(convert_charrefs=True)
        self.texts = []
        self.tags = []
        self.styles = []
        self._open = []
        markup.encode()
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", markup)
        self.feed(markup)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        assert tag in TAGS, tag
        for name, value in attrs:
            assert name in ATTRIBUTES, name
            if name == "style":
                assert "url" not in value
                assert "expression" not in value
                self.styles.append(value)
            elif name == "title":
                self.texts.append(value)
        self.tags.append(tag)
        self._open.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)

    def handle_comment(self, data):
        raise AssertionError(data)

    handle_decl = handle_pi = unknown_decl = handle_comment

    @property
    def text(self):
        return "\n".join(self.texts)
