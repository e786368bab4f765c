"""What can go wrong with the hub, in the words of who asked for a model."""

from collections.abc import Iterator
from contextlib import contextmanager

from huggingface_hub import constants
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    HTTPError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils import get_token

_UNAUTHORIZED = 401
_FORBIDDEN = 403


class HubError(Exception):
    """A model cannot be pulled; the message is one line that says why and, where possible, the cure."""


@contextmanager
def explained(model: str, revision: str | None) -> Iterator[None]:
    """Inside, what the hub's client raises becomes a HubError."""
    try:
        yield
    except GatedRepoError as error:
        raise HubError(f"{model} is gated: ask for access at its page on the hub, then {_CURE}") from error
    except RevisionNotFoundError as error:
        raise HubError(f"{model} has no revision {revision!r}") from error
    except RepositoryNotFoundError as error:
        raise HubError(f"the hub has no model {model!r}, or it is private: {_key(error)}") from error
    except HFValidationError as error:
        raise HubError(f"{model!r} is no model of the hub: those are named ORGANIZATION/NAME") from error
    except LocalEntryNotFoundError as error:
        raise HubError(f"{model} is not here as a whole: {_first_line(error)}") from error
    except HfHubHTTPError as error:
        cure = f"; {_key(error)}" if error.response.status_code in (_UNAUTHORIZED, _FORBIDDEN) else ""
        raise HubError(f"the hub does not hand out {model}: {_first_line(error)}{cure}") from error
    except HTTPError as error:
        raise HubError(f"the hub at {constants.ENDPOINT} does not answer: {_first_line(error)}") from error
    except OSError as error:
        raise HubError(f"{model} cannot be pulled: {_first_line(error)}") from error


_CURE = "set HF_TOKEN to a token of yours, or run `hf auth login`"


def _key(_: HfHubHTTPError) -> str:
    return "the token that is set does not do" if get_token() else _CURE


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
