"""Says where the documents are not plain: sentences that are too long, or that hang together by several ; or :.

    python scripts/check_english.py [--all] [FILE ...]

Of each document half the sentences have at most 18 words and 95 of a hundred at most 32; none has more than one
semicolon or colon. Code, links' targets and headings do not count; what stands in a cell of a table or an item of a
list is read as sentences of its own. In documents, comments and messages some words are not used: they do not say who
or what is meant.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).resolve().parent.parent
MEDIAN_WORDS, MOST_WORDS, MOST_JOINTS = 18, 32, 1
DOCUMENTS = (
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "docs/*.md",
    "docs/decisions/*.md",
    "docs/recipes/*.md",
    "ops/*.md",
    "*/README.md",
    "*/*/README.md",
)
LEFT_OUT = (
    "docs/configuration.md",
    "docs/http-fields.md",
    "docs/sdk-parity.md",
)  # generated from what --help says, which is read below
COMMANDS = (
    "", "up", "demo", "doctor", "run", "chat", "router", "worker", "http", "health", "keys", "tenants", "tokens",
    "models", "models pull", "worker install-service", "up install-service",
)  # fmt: skip
SOURCES = ("*.py", "*.lua", "*.proto", "*.md", "*.sh", "*.yml")
_VAGUE = re.compile(r"\b(whoever|somebody|anybody|nobody's|(?:is|are|be) had)\b", re.IGNORECASE)
_NAME = re.compile(r"\b[A-Z_]+\b")  # of a constant
_END = re.compile(r"(?<=[.!?])[)\"]?\s+(?=[\"(`]?[A-Z0-9`])")
_SHORT = re.compile(r"\b(e\.g|i\.e|etc|vs|al|No|cf)\.")
_JOINT = re.compile(r"[;:](?=\s|$)")


@dataclass(frozen=True)
class Sentence:
    place: str
    text: str

    @property
    def num_words(self) -> int:
        return len(self.text.split())


def sentences(place: str, text: str) -> Iterator[Sentence]:
    """What stands between full stops."""
    whole = _SHORT.sub(r"\1", " ".join(text.split()))
    for part in _END.split(whole):
        if len(part.split()) > 2:
            yield Sentence(place, part)


def of_markdown(name: str, text: str) -> Iterator[Sentence]:
    """The prose of a page. Raises nothing: whatever is written is some Markdown."""
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    for before, token in zip([None, *tokens], tokens, strict=False):
        if token.type == "inline" and not (before and before.type == "heading_open"):
            line = token.map[0] + 1 if token.map else 0
            yield from sentences(f"{name}:{line}", "".join(map(_prose, token.children or [])))


def _prose(token: Token) -> str:
    match token.type:
        case "text":
            return token.content
        case "code_inline":
            return "`x`"  # one word, whatever it is
        case "softbreak" | "hardbreak":
            return " "
        case _:
            return ""


def of_help(command: str) -> Iterator[Sentence]:
    """What --help says: paragraphs, and what stands beside each flag."""
    words = [sys.executable, "-m", "kakeya", *command.split(), "--help"]
    said = subprocess.run(words, capture_output=True, text=True, check=True, env={"COLUMNS": "100", "PATH": ""}).stdout
    prose, _, _ = said.partition("\nexamples:")
    for block in re.split(r"\n\s*\n|\n(?=  \S)", prose):
        if not block.startswith("usage:"):
            text = re.sub(r"\[KAKEYA_\w+\]", "", re.sub(r"^  \S+( \S+)?(?=\s{2,})", "", block))
            yield from sentences(f"kakeya {command} --help", text)


def faults(name: str, found: list[Sentence]) -> Iterator[str]:
    """Where a document is not plain."""
    lengths = [sentence.num_words for sentence in found]
    if len(lengths) > 1:
        # of few sentences the quantile is extrapolated beyond the longest
        middle, long = median(lengths), min(quantiles(lengths, n=20)[-1], max(lengths))
        if middle > MEDIAN_WORDS:
            yield f"{name}: half of the sentences have more than {middle:g} words; {MEDIAN_WORDS} are plain"
        if long > MOST_WORDS:
            yield f"{name}: one sentence of twenty has more than {long:.0f} words; {MOST_WORDS} are plain"
            for sentence in sorted(found, key=lambda sentence: -sentence.num_words)[: len(found) // 20 + 1]:
                yield f"  {sentence.place}: {sentence.num_words} words: {sentence.text[:100]}..."
    for sentence in found:
        if len(_JOINT.findall(sentence.text)) > MOST_JOINTS:
            yield f"  {sentence.place}: more than one ; or : in: {sentence.text[:100]}..."


def vague(name: str, text: str) -> Iterator[str]:
    """Words that do not say who or what is meant, line by line."""
    for number, line in enumerate(text.splitlines(), 1):
        if found := _VAGUE.search(_NAME.sub("", line)):
            yield f"{name}:{number}: {found[1]!r} does not say who or what is meant"


def _sources() -> Iterator[tuple[str, str]]:
    """All that git knows, but for tests and for this list of words itself."""
    listed = subprocess.run(["git", "ls-files", *SOURCES], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in listed.splitlines():
        if not name.startswith("tests/") and name != f"scripts/{Path(__file__).name}":
            yield name, (ROOT / name).read_text()


def _is_foreign(file: Path) -> bool:
    return any(part.startswith(".") or part == "node_modules" for part in file.parts)


def main(argv: list[str]) -> int:
    chosen = [Path(each).resolve() for each in argv] or sorted(
        {file for pattern in DOCUMENTS for file in ROOT.glob(pattern) if not _is_foreign(file.relative_to(ROOT))}
    )
    texts = {str(file.relative_to(ROOT)): file.read_text() for file in chosen}
    pages = {name: list(of_markdown(name, text)) for name, text in texts.items() if name not in LEFT_OUT}
    if not argv:
        pages |= {f"kakeya {command} --help": list(of_help(command)) for command in COMMANDS}
    found = [fault for name, page in pages.items() for fault in faults(name, page)]
    if not argv:
        found += [fault for name, text in _sources() for fault in vague(name, text)]
    print("\n".join(found) or f"{len(pages)} documents are plain")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
