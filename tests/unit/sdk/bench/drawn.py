"""Pictures as tests ask about them."""

import io
from xml.etree import ElementTree as ET

from PIL import Image

from kakeya.bench.pictures import Picture


def words(picture: Picture) -> str:
    """Everything that is written in a picture, a line each, as it is drawn."""
    return "\n".join(element.text or "" for element in ET.fromstring(picture.svg).iter("text"))


def drawn_lines(picture: Picture) -> list[list[tuple[float, float]]]:
    """The points of each line in a colour of data, in points from the upper left corner."""
    paths = [
        path for path in ET.fromstring(picture.svg).iter("path") if "stroke: var(--series" in path.get("style", "")
    ]
    numbers = [[float(word) for word in path.get("d", "").split() if word not in "MLz"] for path in paths]
    return [list(zip(each[::2], each[1::2], strict=True)) for each in numbers]


def image(png: bytes) -> Image.Image:
    """A PNG as it is seen, on what is behind it."""
    image = Image.open(io.BytesIO(png))
    assert image.format == "PNG"
    return image.convert("RGB")


def share_of_paper(png: bytes) -> float:
    """How much of a PNG is white."""
    seen = image(png).convert("L")
    return seen.histogram()[255] / (seen.width * seen.height)
