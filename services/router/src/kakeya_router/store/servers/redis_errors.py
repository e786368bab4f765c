"""What errors of redis-py say: whether Redis can be used now."""

import re

from redis import exceptions

# Refused, reset, still loading its data, or silent.
NO_ANSWER = (exceptions.ConnectionError, exceptions.TimeoutError, OSError)
# Alive, and not for this router as it is configured.
_NO_ENTRY = (exceptions.AuthenticationError, exceptions.AuthorizationError, exceptions.NoPermissionError)
_NO_DATABASE = re.compile("DB index is out of range|invalid DB index")


class TooFewReplicas(exceptions.ResponseError):
    """What was written has not reached as many replicas as were to have it, in time."""


# Alive and not able to take writes: a replica in the middle of a fail-over, a full disk or memory, a cluster that
# lacks nodes. A script's error carries the code in its text, an error of a plain command in its type.
_NO_WRITES = (
    exceptions.ReadOnlyError,
    exceptions.OutOfMemoryError,
    exceptions.ClusterDownError,
    exceptions.AskError,  # moves, whatever the map said
    exceptions.TryAgainError,
    TooFewReplicas,
)
_NO_WRITES_CODES = re.compile(r"\b(READONLY|MISCONF|OOM|NOREPLICAS|MASTERDOWN|CLUSTERDOWN)\b")
_READ_ONLY = re.compile(r"\bREADONLY\b")


def unusable_because(error: Exception) -> str | None:
    """Why Redis cannot be used now; None: it can, and `error` is about what it was asked."""
    text = " ".join(str(error).split())
    status = getattr(error, "status_code", None)  # which redis-py takes off the text
    text = f"{status} {text}" if isinstance(error, _NO_WRITES) and status and status not in text else text
    if isinstance(error, _NO_ENTRY) or _NO_DATABASE.search(text):
        return f"Redis refuses this router ({text}); see --redis"
    if isinstance(error, NO_ANSWER):
        return f"Redis does not answer ({type(error).__name__})"
    code = _NO_WRITES_CODES.search(text)
    if code or isinstance(error, _NO_WRITES):
        return f"Redis takes no writes ({text[code.start() if code else 0 :]})"
    return None


def is_read_only(error: Exception) -> bool:
    """Whether the server is a replica, or has become one."""
    return isinstance(error, exceptions.ReadOnlyError) or bool(_READ_ONLY.search(str(error)))
