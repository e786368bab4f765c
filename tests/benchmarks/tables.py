"""A bench's document for a reader: what has rows becomes a table, and the rest stands in a list of names and values."""

from collections.abc import Mapping, Sequence
from typing import Any

from kakeya_bench.report import quantities
from kakeya_bench.report.blocks import Section, Table
from kakeya_bench.report.quantities import Precise
from kakeya_bench.statistics.distribution import median


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
