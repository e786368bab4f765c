"""An SVG drawing made fit for being a part of an HTML page, beside others."""

import re
from collections.abc import Iterator, Mapping
from xml.etree import ElementTree as ET

_UNWANTED = ("metadata", "style")
_GEOMETRY = ("d", "x", "y")
_REFERENCE = re.compile(r"(?<=url\(#)[^)]+")
_LONG_FRACTION = re.compile(r"-?\d+\.\d{3,}")


def inline(document: str, *, prefix: str, names: Mapping[str, str]) -> str:
    """The `<svg>` element of an SVG document as matplotlib writes it.

    - Its ids begin with the prefix: two drawings in a page do not refer to each other's parts.
    - It may take the page's colours, so that it can be read on dark pages and on light ones, and the reader's font.
    - It has no style sheet, which would hold for the whole page; no namespaces, which HTML does not need; no size,
      which the page gives.
    - A hundredth of a point is precise enough for it.

    Args:
        prefix: of ids; letters, digits and hyphens.
        names: what stands in a style of the document, by what stands there afterwards in its place.
    """
    root = ET.fromstring(document)  # noqa: S314  # it was drawn here
    for parent in root.iter():
        for child in [child for child in parent if _local(child.tag) in _UNWANTED]:
            parent.remove(child)
    for element in root.iter():
        element.tag = _local(element.tag)
        element.attrib = {_local(name): value for name, value in element.items()}
        _join_lines(element)
    referred = {name for element in root.iter() for name in _references(element)}
    for element in root.iter():
        if element.get("id") not in referred:
            element.attrib.pop("id", None)
        element.attrib = {name: _value(name, value, prefix, names) for name, value in element.items()}
    root.attrib = {"viewBox": root.attrib["viewBox"], "style": "stroke-linejoin: round"}
    return ET.tostring(root, encoding="unicode")


def _references(element: ET.Element) -> Iterator[str]:
    """Ids of the parts that an element refers to."""
    for name, value in element.items():
        if name == "href":
            yield value.removeprefix("#")
        yield from _REFERENCE.findall(value)


def _value(name: str, value: str, prefix: str, names: Mapping[str, str]) -> str:
    """What an attribute has in the page."""
    if name == "id":
        return f"{prefix}-{value}"
    if name == "href":
        return f"#{prefix}-{value.removeprefix('#')}"
    if name in _GEOMETRY:
        return " ".join(_LONG_FRACTION.sub(lambda match: f"{float(match[0]):.2f}", value).split())
    if name == "style":
        for old, new in names.items():
            value = value.replace(old, new)
    return _REFERENCE.sub(lambda match: f"{prefix}-{match[0]}", value)


def _join_lines(element: ET.Element) -> None:
    """Takes away the line breaks and the indentation between tags; what is in a `<text>` stays."""
    element.tail = None
    if len(element):
        element.text = None


def _local(name: str) -> str:
    """The name of a tag or of an attribute without its namespace."""
    return name.rpartition("}")[2]
