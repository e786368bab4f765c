r"""The file of a service's variables, which its owner alone reads: what it is configured with, secrets included.

One form that systemd's EnvironmentFile= and python-dotenv read alike: NAME="value" a line, with \ before " and \.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from dotenv import dotenv_values

from kakeya_shared.installed_service.service import ServiceError

HIDDEN = "********"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f]")
# What any of our commands follows: proxies, authorities, caches, the hub, OpenTelemetry.
_COMMON_PREFIXES = ("HF_", "OTEL_")
_COMMON = (
    "PATH", "LANG", "LC_ALL", "TZ", "XDG_CACHE_HOME", "XDG_STATE_HOME", "SSL_CERT_FILE", "SSL_CERT_DIR",
    "http_proxy", "https_proxy", "no_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY",
)  # fmt: skip


def carried(environment: Mapping[str, str], prefixes: Iterable[str]) -> dict[str, str]:
    """Of the environment of who installs a service, what the service is to find too."""
    begins = (*prefixes, *_COMMON_PREFIXES)
    return {name: text for name, text in environment.items() if text and (name in _COMMON or name.startswith(begins))}


def asked_for(words: Iterable[str], environment: Mapping[str, str]) -> dict[str, str]:
    """Variables of `--env`: NAME=VALUE, or NAME with the value that it has here. Raises ServiceError."""
    found = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not _NAME.fullmatch(name):
            raise ServiceError(f"--env {name!r}: a variable's name has letters, digits and _")
        if not equals and name not in environment:
            raise ServiceError(f"--env {name}: there is no such variable here; NAME=VALUE gives it one")
        found[name] = text if equals else environment[name]
    return found


def document(name: str, variables: Mapping[str, str]) -> str:
    """The file. Raises ServiceError: a value cannot stand in it."""
    lines = [f"# Variables of {name}, read when it starts: restart-service after a change."]
    for variable, text in sorted(variables.items()):
        if _UNPRINTABLE.search(text):
            raise ServiceError(f"${variable} holds a control character, which a file of variables cannot")
        escaped = text.replace("\\", "\\\\").replace('"', '\\"')
        lines.append(f'{variable}="{escaped}"')
    return "\n".join([*lines, ""])


def read(path: Path) -> dict[str, str]:
    """The variables of such a file. Raises ServiceError."""
    try:
        with path.open(encoding="utf-8", errors="surrogateescape") as file:
            found = dotenv_values(stream=file, interpolate=False)
    except OSError as error:
        raise ServiceError(f"{path} cannot be read: {error.strerror or error}") from error
    return {name: text for name, text in found.items() if text is not None}
