"""Flags that say how to reach the runtime, the same for every command; each has an environment variable."""

import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import grpc

from kakeya._transport import _api_key
from kakeya._transport._tls import tls_credentials
from kakeya.cli.flags.connection import Connection
from kakeya.cli.output.table import printable

DEFAULT_ADDRESS = "localhost:50051"
_TLS_HELP = {
    "tls-ca": "certificate authorities of the router, in PEM, for a connection by TLS",
    "tls-cert": "certificate chain to present to the router, in PEM",
    "tls-key": "private key of --tls-cert, in PEM",
}


class ConnectionFlags(Protocol):
    """What `add` adds, given as attributes."""

    address: str
    api_key_file: Path | None
    tls_ca: Path | None
    tls_cert: Path | None
    tls_key: Path | None


class BadConnectionFlag(Exception):
    """A flag or variable cannot be used; the message says which and why, never what a key is."""


def add(
    parser: ArgumentParser,
    environment: Mapping[str, str] = os.environ,
    *,
    default_address: str | None = DEFAULT_ADDRESS,
    address_variables: tuple[str, ...] = ("KAKEYA_ADDRESS",),
) -> None:
    """Adds them to a parser.

    Args:
        default_address: None lets the command see that none was named.
        address_variables: the first that is set counts.
    """
    address = next((environment[name] for name in address_variables if environment.get(name)), default_address)
    parser.add_argument(
        "--address",
        default=address,
        metavar="HOST:PORT",
        help=f"the router. Default {DEFAULT_ADDRESS} [{', '.join(address_variables)}]",
    )
    parser.add_argument(
        "--api-key-file",
        type=Path,
        metavar="FILE",
        help=f"file with the key, where the router asks for one. Default: the variable {_api_key.VARIABLE}. There is "
        "no flag for the key itself, because all users of the host see flags",
    )
    for name, says in _TLS_HELP.items():
        variable = "KAKEYA_" + name.upper().replace("-", "_")
        default = environment.get(variable) or None
        parser.add_argument(f"--{name}", type=Path, default=default, metavar="FILE", help=f"{says} [{variable}]")


def read(
    flags: Namespace | ConnectionFlags,
    environment: Mapping[str, str] = os.environ,
    *,
    default_address: str = DEFAULT_ADDRESS,
) -> Connection:
    """The connection that the flags describe; warns where the key can be read on the way. Raises BadConnectionFlag."""
    address = flags.address or default_address
    try:
        address.encode()
    except UnicodeEncodeError:  # bytes of a variable or a command line that are no text
        raise BadConnectionFlag(f"--address {printable(address)} is not HOST:PORT") from None
    connection = Connection(address, _key(flags.api_key_file, environment), _credentials(flags))
    if connection.shows_key:
        print(f"kakeya: warning: the key goes to {address} in plaintext; use TLS (--tls-ca)", file=sys.stderr)
    return connection


def _key(file: Path | None, environment: Mapping[str, str]) -> str:
    source = f"${_api_key.VARIABLE}" if file is None else f"--api-key-file {file}"
    try:
        secret = environment.get(_api_key.VARIABLE, "") if file is None else file.read_text().strip()
        if secret:
            _api_key.ApiKey(secret, source)
    except OSError as error:
        raise BadConnectionFlag(f"{source}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise BadConnectionFlag(f"{source}: holds no key") from None  # the error has the bytes in it
    except ValueError as error:
        raise BadConnectionFlag(str(error)) from error
    if file is not None and not secret:
        raise BadConnectionFlag(f"{source}: is empty")
    return secret


def _credentials(flags: Namespace | ConnectionFlags) -> grpc.ChannelCredentials | None:
    if flags.tls_ca is None and flags.tls_cert is None and flags.tls_key is None:
        return None
    if (flags.tls_cert is None) != (flags.tls_key is None):
        raise BadConnectionFlag("--tls-cert and --tls-key go together")
    try:
        return tls_credentials(ca=flags.tls_ca, cert=flags.tls_cert, key=flags.tls_key)
    except OSError as error:
        raise BadConnectionFlag(f"{error.filename}: {error.strerror}") from error
    except ValueError as error:
        raise BadConnectionFlag(str(error)) from error
