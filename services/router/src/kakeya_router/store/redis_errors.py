"""What errors of redis-py say: whether Redis can be used now."""

import re

from redis import exceptions

# Refused, reset, still loading its data, or silent.
NO_ANSWER = (exceptions.ConnectionError, exceptions.TimeoutError, OSError)
# Alive, and not for this router as it is configured.
_NO_ENTRY = (exceptions.AuthenticationError, exceptions.AuthorizationError, exceptions.NoPermissionError)
_NO_DATABASE = re.compile("DB index is out of range|invalid DB index")
# Alive and not able to take writes: a replica in the middle of a fail-over, a full disk or memory, a cluster that
# lacks nodes. An error carries the code in its text, or where redis-py knows it (of scripts since Redis 7) in its type.
_NO_WRITES: dict[type[Exception], str] = {
    exceptions.ReadOnlyError: "READONLY",
    exceptions.OutOfMemoryError: "OOM",
    exceptions.ClusterDownError: "CLUSTERDOWN",
}
_NO_WRITES_CODES = re.compile(r"\b(READONLY|MISCONF|OOM|NOREPLICAS|MASTERDOWN|CLUSTERDOWN)\b")


def unusable_because(error: Exception) -> str | None:
    """Why Redis cannot be used now; None: it can, and `error` is about what it was asked."""
    text = " ".join(str(error).split())
    if isinstance(error, _NO_ENTRY) or _NO_DATABASE.search(text):
        return f"Redis refuses this router ({text}); see --redis"
    if isinstance(error, NO_ANSWER):
        return f"Redis does not answer ({type(error).__name__})"
    if found := _NO_WRITES_CODES.search(text):
        return f"Redis takes no writes ({text[found.start() :]})"
    code = next((code for kind, code in _NO_WRITES.items() if isinstance(error, kind)), "")
    return f"Redis takes no writes ({code} {text})" if code else None
