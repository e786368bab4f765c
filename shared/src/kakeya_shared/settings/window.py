"""The window of a lane, as a setting: a number of tokens, or `max`."""

from typing import Annotated, Literal

from pydantic import BeforeValidator

MAX: Literal["max"] = "max"
"""The largest that the slab and the model allow."""


def _checked(given: object) -> object:
    if given is None or given == MAX:
        return given
    try:
        num_tokens = int(str(given))
    except ValueError as error:
        raise ValueError(f"{given!r} is neither a number of tokens nor {MAX}") from error
    if num_tokens < 1:
        raise ValueError(f"must be at least 1, or {MAX}")
    return num_tokens


Window = Annotated[int | Literal["max"] | None, BeforeValidator(_checked)]
"""None: it is not given."""
