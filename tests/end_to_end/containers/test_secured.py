"""The compose stack with keys, and with TLS at its ports, whose certificates are replaced while calls run."""

import asyncio
import secrets
import ssl
from pathlib import Path
from typing import NamedTuple

import grpc
import pytest

import kakeya
from tests.end_to_end.containers.chat import chat
from tests.end_to_end.containers.engine import NEEDS_ENGINE, Published, compose
from tests.end_to_end.containers.watched import NEEDS_PROMETHEUS, watching
from tests.integration.processes import wait_until

pytestmark = NEEDS_ENGINE


class Secured(NamedTuple):
    """The stack with keys and TLS.

    Attributes:
        variables: of all its commands.
        secrets: which nothing may show.
    """

    stack: Published
    variables: dict[str, str]
    ca: Path
    key: str
    secrets: tuple[str, ...]

    @property
    def credentials(self) -> grpc.ChannelCredentials:
        return kakeya.tls_credentials(ca=self.ca)

    @property
    def trusted(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.ca)

    def shown(self) -> tuple[str, ...]:
        """The certificates of router and HTTP shim, as they are shown now."""
        places = (address.rpartition(":") for address in (self.stack.grpc, self.stack.http))
        return tuple(ssl.get_server_certificate((host, int(port)), ca_certs=str(self.ca)) for host, _, port in places)


@pytest.fixture(scope="module")
def secured(stack: Published, tmp_path_factory: pytest.TempPathFactory) -> Secured:
    key, token = secrets.token_hex(32), secrets.token_hex(32)
    compose("run", "--rm", "-T", "certificates")
    ca = tmp_path_factory.mktemp("tls") / "ca.pem"
    ca.write_text(compose("run", "--rm", "-T", "--entrypoint", "cat", "certificates", "/tls/ca.pem"))
    variables = stack.environment | {
        "KAKEYA_AUTH": "keys",
        "KAKEYA_ADMIN_KEY": key,
        "KAKEYA_JOIN_TOKEN": token,
        "KAKEYA_ROUTER_INSECURE": "false",
        "KAKEYA_TLS": "on",
    }
    compose("up", "-d", "--wait", environment=variables)
    return Secured(stack, variables, ca, key, (key, token))


async def test_the_whole_stack_asks_for_keys(secured: Secured) -> None:
    address, credentials = secured.stack.grpc, secured.credentials
    async with kakeya.AsyncClient(address, credentials=credentials, api_key="") as stranger:
        with pytest.raises(kakeya.Unauthenticated):
            await stranger.create_session()
    # The workers count as healthy before they have joined the new router.
    async with (
        kakeya.AsyncClient(address, credentials=credentials, api_key=secured.key, max_attempts=30) as client,
        await client.create_session() as session,
    ):
        assert len(await session.turn([1, 2, 3], max_tokens=4).all()) == 4
    given: tuple[dict[str, str], ...] = ({}, {"authorization": f"Bearer {secured.key}"})
    answers = [chat(secured.stack.http, "kakeya-nano", trusted=secured.trusted, **headers)[0] for headers in given]
    assert answers == [401, 200]
    logs = compose("logs", "--no-color")
    assert not [each for each in secured.secrets if each in logs]


def test_nobody_is_served_without_tls(secured: Secured) -> None:
    with pytest.raises(OSError, match=r"closed|reset"):
        chat(secured.stack.http, "kakeya-nano")
    with (
        kakeya.Client(secured.stack.grpc, api_key=secured.key, max_attempts=1) as client,
        pytest.raises(kakeya.Unavailable),
    ):
        client.create_session()


@NEEDS_PROMETHEUS
def test_prometheus_watches_what_serves_tls(secured: Secured) -> None:
    assert watching(secured.variables).value("kakeya_http_in_flight_requests") >= 0


async def test_certificates_are_replaced_while_calls_run(secured: Secured) -> None:
    before = secured.shown()
    async with (
        kakeya.AsyncClient(secured.stack.grpc, credentials=secured.credentials, api_key=secured.key) as client,
        await client.create_session() as session,
        session.turn([1, 2, 3], max_tokens=2000, ignore_eos=True) as generation,
    ):
        num_tokens = 0
        async for _ in generation:
            if not num_tokens:
                await asyncio.to_thread(compose, "run", "--rm", "-T", "certificates", "--renew")
                await asyncio.to_thread(wait_until, lambda: not set(secured.shown()) & set(before), "both are new")
            num_tokens += 1
        assert num_tokens == 2000
        async with kakeya.AsyncClient(
            secured.stack.grpc, credentials=secured.credentials, api_key=secured.key
        ) as another:
            assert (await another.create_session()).id
        assert len(await session.turn([4], max_tokens=4, ignore_eos=True).all()) == 4
    headers = {"authorization": f"Bearer {secured.key}"}
    assert chat(secured.stack.http, "kakeya-nano", trusted=secured.trusted, **headers)[0] == 200


def test_certificates_that_are_good_for_long_are_kept(secured: Secured) -> None:
    before = secured.shown()
    assert compose("run", "--rm", "-T", "certificates") == ""
    assert secured.shown() == before


@pytest.mark.parametrize("service", ["router", "http"])
def test_the_authority_signs_for_nobody_but_its_script(secured: Secured, service: str) -> None:
    look = "cat /tls/ca.key; touch /tls/router.pem"
    said = compose("exec", "-T", service, "sh", "-c", f"{{ {look}; }} 2>&1 || true")
    assert "Permission denied" in said.splitlines()[0]
    assert "BEGIN" not in said
