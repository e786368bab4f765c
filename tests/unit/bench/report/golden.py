"""One page of each report, as it is meant to be: drawing is tested by that."""

import os
import re
from pathlib import Path


def differs(page: bytes, golden: Path, *pictures: str) -> bool:
    """Whether a page is another one than that in a file, which has the names of its pictures in place of their data.

    The style sheet, which all pages have, is not in the file. WRITE_GOLDEN=1 in the environment of pytest writes the
    file anew; what has changed is then for `git diff` to say.
    """
    names = iter(pictures)
    shown = re.sub(r'(?<=src=")data:image/svg\+xml;base64,[^"]*', lambda _: next(names), page.decode())
    shown = re.sub("(?s)(?<=<style>).*?(?=</style>)", "", shown)
    if os.environ.get("WRITE_GOLDEN"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(shown)
    return shown != golden.read_text() or next(names, "") != ""
