"""A report as Markdown, whose pictures are files beside it: what models carry with them."""

from collections.abc import Iterable

from kakeya_bench.report import quantities
from kakeya_bench.report.blocks import Block, Figure, Section, Table


def markdown(title: str, sections: Iterable[Section]) -> bytes:
    """The whole report, in UTF-8."""
    parts = [f"# {title}"]
    for section in sections:
        parts += [f"## {section.heading}", *map(_block, section.blocks)]
    return ("\n\n".join(parts) + "\n").encode(errors="backslashreplace")


def _block(block: Block) -> str:
    match block:
        case Table():
            marks = ["---:" if is_number else "---" for is_number in block.numbers]
            rows = [[quantities.show(cell).replace("|", r"\|") for cell in row] for row in block.rows]
            return "\n".join(f"| {' | '.join(cells)} |" for cells in (block.columns, marks, *rows))
        case Figure():
            return f"![{block.alt}]({block.picture.name}.png)\n\n{block.caption}"
        case _:
            return block
