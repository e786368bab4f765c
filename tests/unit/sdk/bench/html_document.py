"""An HTML page as tests ask about it."""

from html.parser import HTMLParser

_VOID = {"meta"}
_CELLS = {"td", "th"}


class HtmlDocument(HTMLParser):
    """A page that was read.

    Attributes:
        elements: each with its attributes, in order.
        rows: of all tables, the texts of their cells.
        texts: what stands between tags, drawings and style sheets left out.
        drawn: what stands in drawings.
    """

    def __init__(self, content: bytes) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.rows: list[list[str]] = []
        self.texts: list[str] = []
        self.drawn: list[str] = []
        self._open: list[str] = []
        self.feed(content.decode())
        self.close()
        assert not self._open, "every element is closed"

    def named(self, tag: str) -> list[dict[str, str | None]]:
        """The attributes of all elements of a kind."""
        return [attributes for name, attributes in self.elements if name == tag]

    def row(self, name: str) -> list[str]:
        """The only row that begins so, without its name."""
        (found,) = (row for row in self.rows if row[0] == name)
        return found[1:]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in _VOID:
            self._open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in _CELLS:
            self.rows[-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "svg" in self._open:
            self.drawn.append(data)
        elif "style" not in self._open and data.strip():
            self.texts.append(data)
        if _CELLS & {*self._open}:
            self.rows[-1][-1] += data
