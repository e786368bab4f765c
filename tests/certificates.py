"""A certificate authority of the tests: certificates for this host, good ones and expired ones, as PEM files."""

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, in files."""

    cert: Path
    key: Path


class Authority:
    """Signs certificates.

    Attributes:
        path: its own certificate, for those who trust it.
    """

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        self._certificate = self._signed(self._name, self._key, x509.BasicConstraints(True, None), -_DAY, _DAY)
        self.path = directory / f"{name}.pem"
        self.path.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))

    def pair(self, name: str, *, expired: bool = False, addresses: Sequence[str] = ("127.0.0.1",)) -> Pair:
        """A certificate of these addresses and localhost, for servers and clients, with `name` as its subject."""
        key = ec.generate_private_key(ec.SECP256R1())
        hosts = [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
        names = x509.SubjectAlternativeName([*hosts, x509.DNSName("localhost")])
        ends = -_DAY / 2 if expired else _DAY
        certificate = self._signed(_name(name), key, names, -_DAY, ends)
        pair = Pair(self._directory / f"{name}.crt", self._directory / f"{name}.key")
        pair.cert.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        pair.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return pair

    def _signed(
        self,
        name: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        extension: x509.ExtensionType,
        begins: datetime.timedelta,
        ends: datetime.timedelta,
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateBuilder(self._name, name, key.public_key(), x509.random_serial_number())
        builder = builder.not_valid_before(now + begins).not_valid_after(now + ends)
        return builder.add_extension(extension, critical=False).sign(self._key, hashes.SHA256())


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
