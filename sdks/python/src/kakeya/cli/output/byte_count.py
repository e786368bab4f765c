"""Numbers of bytes as people write them: 1048576, 512KiB, 20GiB."""

import re
from argparse import ArgumentTypeError

_UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_WRITTEN = re.compile(r"([0-9]{1,15})(|[KMGT]iB)")
_MOST = 2**53  # what every program that reads JSON keeps exactly


class Bytes(int):
    """A number of bytes that people read in a table."""


def show(count: int) -> str:
    """Rounded, e.g. "1.5 GiB"; below 1 KiB exact, "512 B"."""
    unit, size = [(unit, size) for unit, size in _UNITS.items() if size <= max(count, 1)][-1]
    return f"{count / size:,.1f} {unit}" if unit else f"{count} B"


def parse(text: str) -> int:
    """Bytes. Raises argparse.ArgumentTypeError."""
    written = _WRITTEN.fullmatch(text)
    if written is None or (count := int(written[1]) * _UNITS[written[2]]) > _MOST:
        raise ArgumentTypeError(f"{text!r} is no number of bytes; write 1048576, 512KiB, 100MiB or 20GiB")
    return count
