"""What `kakeya router` can be told of workers that nobody can dial."""

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Self

from pydantic import model_validator

from kakeya_router.kept_settings import KeptSettings
from kakeya_shared.settings.addresses import NOWHERE, Address, AddressOrNone, HostPort, is_loopback
from kakeya_shared.settings.service import setting


class TunnelSettings(KeptSettings):
    """The port at which their tunnels end."""

    GROUPS: ClassVar[Mapping[str, str]] = {"tunnels": "tunnel_bind tunnel_advertise tunnel_ca"}
    tunnel_bind: AddressOrNone = setting(
        "127.0.0.1:0",
        "where workers that nobody can dial (--reverse) bring their connections, with TLS where --tls-cert is given; "
        "none takes no such workers",
        unit="HOST:PORT",
        reason="this host only, and a free port, which workers are told",
    )
    tunnel_advertise: Address | None = setting(
        None,
        "where such workers, and other routers, reach --tunnel-bind",
        unit="HOST:PORT",
        reason="the host of --advertise, and the port that --tunnel-bind took",
    )
    tunnel_ca: Path | None = setting(
        None,
        "certificate authorities of the other routers' tunnel ports, in PEM: with it this router reaches workers "
        "through tunnels that end at others, and presents --tls-cert",
        unit="file",
        reason="none, and plaintext, which a port with TLS refuses",
    )

    @model_validator(mode="after")
    def _tunnels_are_closed(self) -> Self:
        if self.tunnel_bind == NOWHERE or self.insecure:
            return self
        host = HostPort.parse(self.tunnel_bind).host
        if not is_loopback(host) and self.tls_cert is None:
            raise ValueError(
                f"--tunnel-bind {host} is outside loopback and speaks plaintext (--tls-cert); --insecure does it "
                "nevertheless"
            )
        return self
