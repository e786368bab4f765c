from functools import cache

import pytest
from matplotlib.figure import Figure

from kakeya.bench import pictures
from kakeya.bench.html_page import Badge, Column, Drawing, Section, Table, page
from kakeya.bench.pictures import Picture
from tests.unit.sdk.bench.html_document import HtmlDocument

NASTY = "</title></style><script>alert('1')</script> & \" onload=\"x"


def drawing(name: str) -> Drawing:
    def paint(figure: Figure) -> None:
        (panel,) = pictures.rows(figure, 1)
        panel.plot([1, 2], marker="o", label="drawn & labelled")
        pictures.legend(panel)

    return Drawing(pictures.draw(name, 4.0, 3.0, paint), f"alt {NASTY}", f"caption {NASTY}")


@cache
def whole() -> bytes:
    table = Table(
        [Column(f"name {NASTY}"), Column("turns", is_number=True), Column("gate")],
        [[NASTY, 12_345, Badge("passed")], ["b", None, True], ["c", "1.50", Badge("failed", NASTY)], ["d", 0, False]],
    )
    return page(NASTY, [Badge("undecided", NASTY)], [Section(NASTY, [NASTY, table, drawing("one"), drawing("two")])])


def test_a_page_is_html_with_a_title_and_its_parts() -> None:
    content = whole()
    assert content.startswith(b'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">')
    document = HtmlDocument(content)
    tags = [tag for tag, _ in document.elements]
    for tag, number in {"html": 1, "title": 1, "h1": 1, "h2": 1, "main": 1, "table": 1, "figure": 2, "svg": 2}.items():
        assert tags.count(tag) == number
    assert document.named("style"), "what it looks like is in it"
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in document.named("meta")


def test_nothing_of_a_page_is_elsewhere_and_nothing_in_it_runs() -> None:
    document = HtmlDocument(whole())
    assert {tag for tag, _ in document.elements}.isdisjoint(
        {"script", "link", "img", "iframe", "object", "embed", "base"}
    )
    for tag, attributes in document.elements:
        assert not [name for name in attributes if name.startswith("on") or name == "src"]
        href = attributes.get("href")
        assert href is None or href == "report.json" or (tag == "use" and href.startswith("#"))
    (policy,) = (each["content"] for each in document.named("meta") if "http-equiv" in each)
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"
    assert b"http:" not in whole()
    assert b"https:" not in whole()
    assert b"@import" not in whole()


def test_all_text_is_escaped_wherever_it_stands() -> None:
    document = HtmlDocument(whole())
    assert len([text for text in document.texts if NASTY in text]) == 10
    assert document.rows == [
        [f"name {NASTY}", "turns", "gate"],
        [NASTY, "12,345", "✓ passed"],
        ["b", "\N{EN DASH}", "yes"],
        ["c", "1.50", f"✗ {NASTY}"],
        ["d", "0", "no"],
    ]
    assert [each["aria-label"] for each in document.named("div")] == [NASTY, f"alt {NASTY}", f"alt {NASTY}"]
    assert document.drawn.count("drawn & labelled") == 2


def test_numbers_are_aligned_and_rows_and_columns_have_headers() -> None:
    document = HtmlDocument(whole())
    cells = [(tag, attributes) for tag, attributes in document.elements if tag in ("th", "td")]
    assert cells[:6] == [
        ("th", {"scope": "col"}),
        ("th", {"scope": "col", "class": "number"}),
        ("th", {"scope": "col"}),
        ("th", {"scope": "row"}),
        ("td", {"class": "number"}),
        ("td", {}),
    ]


def test_a_row_that_does_not_fit_its_columns_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="zip"):
        page("title", [], [Section("s", [Table([Column("a"), Column("b")], [["only one"]])])])


@pytest.mark.parametrize(
    ("outcome", "says"),
    [("passed", "✓ passed"), ("failed", "✗ failed"), ("undecided", "? undecided"), ("skipped", "\N{EN DASH} skipped")],
)
def test_a_badge_says_in_words_by_a_sign_and_by_colour(outcome: str, says: str) -> None:
    document = HtmlDocument(page("title", [Badge(outcome)], []))
    assert says in "".join(document.texts)
    assert {"class": f"badge {outcome}"} in document.named("span")
    assert f".badge.{outcome} {{ color".encode() in whole()


def test_two_drawings_of_a_page_share_no_id() -> None:
    document = HtmlDocument(whole())
    ids = [attributes["id"] for _, attributes in document.elements if "id" in attributes]
    assert len(ids) == len({*ids}) > 2
    for reference in document.named("use"):
        assert (reference["href"] or "").removeprefix("#") in ids


def test_a_page_names_the_file_with_all_figures() -> None:
    document = HtmlDocument(page("title", [], [], json_name="a&b.json"))
    assert document.named("a") == [{"href": "a&b.json"}]


def test_a_path_that_is_no_text_is_said_as_well_as_it_can_be() -> None:
    assert b"<p>/tmp/\\udcff</p>" in page("title", [], [Section("s", ["/tmp/\udcff"])])


def test_the_same_page_has_the_same_bytes() -> None:
    assert whole() == whole.__wrapped__()


def test_a_drawing_needs_no_more_than_a_picture() -> None:
    section = Section("s", [Drawing(Picture("p", b"", "<svg></svg>"), "alt", "caption")])
    assert b'<figure><div role="img" aria-label="alt"><svg></svg></div><figcaption>caption' in page("t", [], [section])
