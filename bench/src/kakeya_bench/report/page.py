"""A report as an HTML page that needs nothing else: no script, no style sheet, no picture from elsewhere.

The JSON document is not in it but beside it, and linked: of a run of days it has megabytes, and a page is there to be
opened, mailed and printed.
"""

from collections.abc import Sequence
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from kakeya_bench.report import quantities
from kakeya_bench.report.blocks import Badge, Figure, Section, Table


def page(title: str, badges: Sequence[Badge], sections: Sequence[Section], *, json_name: str) -> bytes:
    """The page, in UTF-8; the same report gives the same bytes.

    Args:
        badges: beside the title: what the whole is like.
        json_name: the file beside it that has all figures.
    """
    html = _template().render(title=title, badges=badges, sections=sections, json_name=json_name)
    # A path in an option may have bytes that are no text, which Python carries as lone surrogates.
    return html.encode(errors="backslashreplace")


def files(
    title: str, badges: Sequence[Badge], sections: Sequence[Section], *, json_name: str, html_name: str = ""
) -> dict[str, bytes]:
    """The page and the pictures in it, by the names of their files; see `page`.

    Args:
        html_name: of the page; else it is named as the document.
    """
    html = page(title, badges, sections, json_name=json_name)
    pictures = [block.picture for section in sections for block in section.blocks if isinstance(block, Figure)]
    name = html_name or f"{json_name.removesuffix('.json')}.html"
    return {name: html, **{f"{each.name}.png": each.png for each in pictures}}


@cache
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader(__package__),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["show"] = quantities.show
    environment.tests |= {
        "badge": lambda value: isinstance(value, Badge),
        "figure": lambda value: isinstance(value, Figure),
        "table": lambda value: isinstance(value, Table),
    }
    return environment.get_template("page.html")
