"""The first line of a tunnel's connection: as it is written, and as it is read."""

import pytest

from kakeya_shared.tunnel.opening import Opening


@pytest.mark.parametrize(
    ("opening", "line"),
    [
        (Opening("dial", "h:1", "ab12"), b"KAKEYA-TUNNEL/1 dial h:1 ab12\n"),
        (Opening("through", "[::1]:9", "ab", "s3cr-t_"), b"KAKEYA-TUNNEL/1 through [::1]:9 ab s3cr-t_\n"),
    ],
)
def test_it_is_read_as_it_is_written(opening: Opening, line: bytes) -> None:
    assert opening.line() == line
    assert Opening.parse(line.decode().rstrip("\n")) == opening


@pytest.mark.parametrize(
    "line",
    [
        "",
        "GET / HTTP/1.1\r",
        "KAKEYA-TUNNEL/2 dial h:1 ab",
        "KAKEYA-TUNNEL/1 dial h:1",
        "KAKEYA-TUNNEL/1 dial h:1 AB",
        "KAKEYA-TUNNEL/1 dial h:1 ab secret",
        "KAKEYA-TUNNEL/1 through h:1 ab",
        "KAKEYA-TUNNEL/1 through h:1 ab one two",
    ],
)
def test_what_is_no_such_line_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="first line"):
        Opening.parse(line)
