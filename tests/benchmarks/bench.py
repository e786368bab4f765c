"""What all benches here have in common: a bench declares its settings and measures; how far it is, what it found,
whether its bounds are kept and where that is written is the same for all.
"""

import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator
from pydantic_settings import NoDecode, SettingsConfigDict
from rich.console import Console

from kakeya_bench.report import blocks, files, progress, quantities
from kakeya_bench.report.blocks import Section, Table
from kakeya_bench.report.console import print_sections
from kakeya_bench.report.environment import environment
from kakeya_bench.report.files import NotWritable
from kakeya_bench.report.progress import Progress
from kakeya_bench.report.quantities import Precise
from kakeya_bench.report.verdict import EXIT_UNDECIDED, Outcome, Verdict, exit_status
from kakeya_bench.rivals.command import RivalFailed
from kakeya_bench.statistics.distribution import median
from kakeya_shared.settings.service import ServiceSettings, setting, split

EXIT_INTERRUPTED = 130

Found = tuple[Mapping[str, Any], Sequence[Verdict]]
"""What a bench measured, in plain values and `quantities`, for JSON and for tables; and its bounds."""

Numbers = Annotated[tuple[int, ...], NoDecode, BeforeValidator(split)]
"""A setting of several, separated by commas."""


class BenchSettings(ServiceSettings):
    """Base of a bench's settings: each is a flag, and a variable KAKEYA_BENCH_*; the module's words are the help."""

    model_config = SettingsConfigDict(
        **(
            ServiceSettings.configured(command="bench")
            | {"cli_shortcuts": {"json-file": "json"}, "cli_implicit_flags": "toggle"}
        )
    )

    json_file: Path | None = setting(None, "also write the numbers there", reason="printed only", metavar="FILE")

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        module = sys.modules[cls.__module__]
        cls.__doc__ = module.__doc__
        cls.model_config["cli_prog_name"] = f"python -m {module.__spec__.name if module.__spec__ else cls.__module__}"

    @classmethod
    def bench(cls) -> str:
        """Its name."""
        return cls._program().rpartition(".")[2]


S = TypeVar("S", bound=BenchSettings)


@dataclass(frozen=True)
class Stage:
    """What a bench is given to measure on.

    Attributes:
        directory: of its files; removed at the end.
    """

    directory: Path
    progress: Progress

    def show(self, share: float, what: str) -> None:
        """So much of the whole, 0 to 1, is done, and this goes on now."""
        self.progress.show(share, what)

    def steps(self, number: int, *, start: float = 0.0, end: float = 1.0) -> Callable[[str], None]:
        """What is to be called after each of so many steps, which are the part from `start` to `end` of the whole."""
        done = 0

        def step(what: str) -> None:
            nonlocal done
            done += 1
            self.show(start + (end - start) * done / number, what)

        return step


def command(kind: type[S]) -> Callable[[Callable[[S, Stage], Found]], Callable[[S, Stage], Found]]:
    """Of what measures, the last function of its module: it is run where the module is the program."""

    def run(measure: Callable[[S, Stage], Found]) -> Callable[[S, Stage], Found]:
        if measure.__module__ == "__main__":
            sys.exit(main(kind, measure))
        return measure

    return run


def main(kind: type[S], measure: Callable[[S, Stage], Found], argv: Sequence[str] | None = None) -> int:
    """Runs a bench.

    Returns:
        Its exit status: 0; 1 where a bound is broken; 2 where nothing can be measured or written; 130 on Ctrl-C.
    """
    settings = kind.parse(list(sys.argv[1:] if argv is None else argv))
    name, console = settings.bench(), Console(file=sys.stderr)
    try:
        if settings.json_file:
            files.prepare(settings.json_file.absolute().parent)
        with tempfile.TemporaryDirectory(prefix=f"kakeya-{name}-") as directory, progress.shown(console, name) as shown:
            document, verdicts = measure(settings, Stage(Path(directory), shown))
        gates = {verdict.gate: verdict.document() for verdict in verdicts}
        title = str(kind.__doc__).splitlines()[0]
        print_sections(title, [*tables(document), Section("bounds", [blocks.gates(gates), _summary(verdicts)])])
        if settings.json_file:
            files.write_json(settings.json_file, _about(settings) | {"gates": gates, **document})
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except (RivalFailed, NotWritable) as error:
        console.print(f"{name}: error: {error}", markup=False, highlight=False, soft_wrap=True)
        return EXIT_UNDECIDED
    return exit_status(verdicts)


def _summary(verdicts: Sequence[Verdict]) -> str:
    broken = [f"{each.gate} ({each.reason})" for each in verdicts if each.outcome is not Outcome.PASSED]
    return f"BROKEN: {'; '.join(broken)}" if broken else "all bounds are kept"


def _about(settings: BenchSettings) -> dict[str, Any]:
    return {
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "environment": environment(),
        "options": settings.model_dump(mode="json", exclude={"json_file"}),
    }


def tables(document: Mapping[str, Any]) -> list[Section]:
    """Mappings of the same names, one after the other, are rows of one table."""
    rows: dict[tuple[str, ...], list[dict[str, object]]] = {}
    found, rest = [], {}
    for name, value in document.items():
        if isinstance(value, Mapping):
            rows.setdefault(tuple(value), []).append({"": name, **_flat(value)})
        elif isinstance(value, Sequence) and value and isinstance(value[0], Mapping):
            found.append(_section(name, [{name: number, **_flat(each)} for number, each in enumerate(value, 1)]))
        else:
            rest[name] = value
    found += [_section(str(each[0][""]), each) for each in rows.values()]
    facts = [[name, value] for name, value in _flat(rest).items()]
    return [*found, Section("", [Table(["name", "value"], facts)])]


def _section(name: str, rows: Sequence[Mapping[str, object]]) -> Section:
    return Section(name, [Table(list(rows[0]), [list(row.values()) for row in rows])])


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, object]:
    """By a column's name."""
    found: dict[str, object] = {}
    for name, value in values.items():
        label = f"{prefix} {name.replace('_', ' ')}".strip()
        found |= _flat(value, label) if isinstance(value, Mapping) else {label: _cell(label, value)}
    return found


def _cell(label: str, value: object) -> object:
    if isinstance(value, str) or not isinstance(value, Sequence):
        return _precise(value)
    low, high = (value[0], value[-1]) if "interval" in label else (type(value[0])(median(value)), max(value))
    between = "to" if "interval" in label else f"(median of {len(value)}), at most"
    return f"{quantities.show(_precise(low))} {between} {quantities.show(_precise(high))}"


def _precise(value: object) -> object:
    return Precise(value) if type(value) is float else value
