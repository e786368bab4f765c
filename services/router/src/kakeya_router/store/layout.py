"""The layout of the data in Redis, which a router has to know."""

from kakeya_router.store.keys import LAYOUT, SCHEMA


class UnknownLayout(Exception):
    """The data in Redis is not for this router."""


def why_unknown(found: str) -> str:
    """What is wrong with a layout that Redis says its data has; empty: this router knows it."""
    if found.isdecimal() and int(found) <= LAYOUT:
        return ""
    return (
        f"this router knows no layout of data but {LAYOUT}, and {SCHEMA} in Redis is {found!r}; "
        "run a newer router, or see --redis"
    )
