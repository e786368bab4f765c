from xml.etree import ElementTree as ET

from kakeya.bench.inline_svg import inline

DOCUMENT = """<?xml version="1.0" encoding="utf-8" standalone="no"?>
<!DOCTYPE svg PUBLIC "-//W3C//DTD SVG 1.1//EN" "http://www.w3.org/Graphics/SVG/1.1/DTD/svg11.dtd">
<svg xmlns:xlink="http://www.w3.org/1999/xlink" width="360pt" height="216pt" viewBox="0 0 360 216"
 xmlns="http://www.w3.org/2000/svg" version="1.1">
 <metadata><dc xmlns="http://purl.org/dc/elements/1.1/">Matplotlib</dc></metadata>
 <defs><style type="text/css">*{stroke-linejoin: round}</style></defs>
 <g id="figure_1">
  <path id="m0" d="M 0 0
L -0.123456 3.5
z
"/>
  <use xlink:href="#m0" x="24.771323" y="7" style="stroke: #111111; fill: #0072b2"/>
  <g clip-path="url(#p1)"><text style="font: 10px 'Some Font'; fill: #111111" x="1">id="m0" &lt;b&gt;  #111111</text>
  </g>
 </g>
 <defs><clipPath id="p1"><rect width="2" height="2.123456"/></clipPath></defs>
</svg>
"""
NAMES = {"#111111": "currentColor", "'Some Font'": "sans-serif"}


def test_a_drawing_stands_in_a_page() -> None:
    assert inline(DOCUMENT, prefix="a-b", names=NAMES) == (
        '<svg viewBox="0 0 360 216" style="stroke-linejoin: round"><defs />'
        '<g><path id="a-b-m0" d="M 0 0 L -0.12 3.5 z" />'
        '<use href="#a-b-m0" x="24.77" y="7" style="stroke: currentColor; fill: #0072b2" />'
        '<g clip-path="url(#a-b-p1)"><text style="font: 10px sans-serif; fill: currentColor" x="1">'
        'id="m0" &lt;b&gt;  #111111</text></g></g>'
        '<defs><clipPath id="a-b-p1"><rect width="2" height="2.123456" /></clipPath></defs></svg>'
    )


def test_two_drawings_share_no_id() -> None:
    one, other = (ET.fromstring(inline(DOCUMENT, prefix=prefix, names={})) for prefix in ("one", "other"))
    ids = [{element.get("id") for element in each.iter()} - {None} for each in (one, other)]
    assert len(ids[0]) == len(ids[1]) == 2
    assert not ids[0] & ids[1]
