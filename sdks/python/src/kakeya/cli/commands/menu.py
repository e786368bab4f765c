"""A menu: a list of commands of which one is run."""

import difflib
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint

from kakeya.cli.commands import commands

EXIT_FAILURE = 1
EXIT_USAGE = 2


@dataclass(frozen=True)
class Menu:
    """The commands behind one word, or behind none.

    Attributes:
        prog: what is typed before a command's name, e.g. "kakeya bench".
        kind, kinds: what an entry is called, and several.
        about: a sentence for the help.
        closing: the help's last line.
        entries: by name.
        requirements: what brings an entry where it is not installed, by the entry's name.
    """

    prog: str
    kind: str
    kinds: str
    about: str
    closing: str
    entries: Mapping[str, EntryPoint]
    requirements: Mapping[str, str] = field(default_factory=dict)

    def run(self, argv: list[str]) -> int:
        """Runs the command that is named first and returns its exit status."""
        match argv:
            case []:
                print(self._help(), file=sys.stderr)
                return EXIT_USAGE
            case ["-h" | "--help" | "help"]:
                print(self._help())
                return 0
            case ["help", name, *_]:
                return self.run([name, "--help"])
            case [name, *_] if name not in self.entries:
                print(f"{self.prog}: {self._unknown(name)}", file=sys.stderr)
                return EXIT_USAGE
        try:
            command = commands.load(self.entries[argv[0]])
        except commands.BrokenCommand as error:
            print(f"{self.prog} {argv[0]}: {error}", file=sys.stderr)
            return EXIT_FAILURE
        return command.main(argv[1:])

    def _help(self) -> str:
        width = max(map(len, self.entries), default=0)
        lines = [f"  {name:{width}}  {commands.summary(point)}" for name, point in self.entries.items()]
        return "\n".join(
            [
                f"usage: {self.prog} {self.kind.upper()} [OPTIONS]",
                "",
                self.about,
                "",
                f"{self.kinds}:",
                *(lines or ["  (none is installed)"]),
                "",
                self.closing,
            ]
        )

    def _unknown(self, name: str) -> str:
        if name in self.requirements:
            return f"{name!r} is not installed; install it with: pip install '{self.requirements[name]}'"
        close = difflib.get_close_matches(name, list(self.entries), n=1)
        cure = f"did you mean {close[0]!r}?" if close else f"`{self.prog} --help` lists the {self.kinds}"
        kind = "option" if name.startswith("-") else self.kind
        return f"unknown {kind} {name!r}; {cure}"
