"""What `kakeya doctor` finds."""

from dataclasses import dataclass
from enum import StrEnum


class Condition(StrEnum):
    """OK; ABSENT: not there, which may be meant; WRONG: asked for, and not as it should be."""

    OK = "ok"
    ABSENT = "absent"
    WRONG = "wrong"


@dataclass(frozen=True)
class Finding:
    """One line of the report.

    Attributes:
        area: installed or reachable.
        subject: what was looked at.
        condition: how it is.
        detail: version, address or what is amiss.
        cure: what to do about it; "" where nothing needs doing.
    """

    area: str
    subject: str
    condition: Condition
    detail: str
    cure: str = ""
