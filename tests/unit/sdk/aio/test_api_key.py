"""The key goes with every call, and nowhere else."""

import logging
import traceback

import grpc
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import kakeya
from kakeya import AsyncClient
from kakeya._spans import _otel
from tests.unit.sdk.scripted_runtime import ScriptedRuntime, fails

SECRET = "kakeya_key_0123456789ab_abcdefghijklmnopqrstuvwxyz0123456789ABCDEFG"


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KAKEYA_API_KEY", raising=False)


async def test_every_call_carries_it(runtime: ScriptedRuntime) -> None:
    async with AsyncClient(runtime.address, api_key=SECRET) as client, await client.create_session() as session:
        await session.turn([1], max_tokens=2).all()
        await session.info()
    methods = ("CreateSession", "AppendTokens", "Generate", "GetSessionInfo", "CloseSession")
    for method in methods:
        assert [sent.get("authorization") for sent in runtime.metadata[method]] == [f"Bearer {SECRET}"], method


@pytest.mark.parametrize(("given", "sent"), [(None, "Bearer from-the-variable"), ("", None), ("mine", "Bearer mine")])
async def test_the_variable_is_the_default(
    runtime: ScriptedRuntime, monkeypatch: pytest.MonkeyPatch, given: str | None, sent: str | None
) -> None:
    monkeypatch.setenv("KAKEYA_API_KEY", "from-the-variable")
    async with AsyncClient(runtime.address, api_key=given) as client:
        await client.create_session()
    assert runtime.metadata["CreateSession"][0].get("authorization") == sent


async def test_another_key_over_the_same_connection(runtime: ScriptedRuntime) -> None:
    async with AsyncClient(runtime.address, api_key="mine") as client:
        for other, sent in (("theirs", "Bearer theirs"), ("", None)):
            await client.with_api_key(other).create_session()
            assert runtime.metadata["CreateSession"][-1].get("authorization") == sent
        await client.create_session()
        with pytest.raises(ValueError, match="has blanks"):
            client.with_api_key("two words")
    assert runtime.metadata["CreateSession"][-1]["authorization"] == "Bearer mine"


async def test_no_key_is_no_header(runtime: ScriptedRuntime) -> None:
    async with AsyncClient(runtime.address) as client:
        await client.create_session()
    assert "authorization" not in runtime.metadata["CreateSession"][0]


@pytest.mark.parametrize("bad", ["two words", "line\n", "tab\t", "schlüssel", "\x00"])
def test_a_key_that_cannot_be_sent_is_refused_unseen(monkeypatch: pytest.MonkeyPatch, bad: str) -> None:
    with pytest.raises(ValueError, match=r"^api_key: has blanks, line ends or characters") as raised:
        AsyncClient(api_key=f"secret{bad}")
    assert "secret" not in str(raised.value)
    if bad != "\x00":  # which no variable can hold
        monkeypatch.setenv("KAKEYA_API_KEY", f"secret{bad}")
        with pytest.raises(ValueError, match=r"^\$KAKEYA_API_KEY: has blanks") as raised:
            AsyncClient()
        assert "secret" not in str(raised.value)


async def test_nothing_shows_it(
    runtime: ScriptedRuntime, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    monkeypatch.setattr(_otel, "_tracer", provider.get_tracer("test"))
    caplog.set_level(logging.DEBUG)
    seen: list[str] = []
    async with AsyncClient(runtime.address, api_key=SECRET, tracing=True) as client:
        seen += [repr(part) for part in (client, vars(client), vars(client._calls), vars(client._calls._transport))]
        async with await client.create_session() as session:
            seen.append(f"{session!r} {vars(session)!r}")
            runtime.before["AppendTokens"] += [fails("UNAUTHENTICATED"), fails("INTERNAL")]
            for _ in range(2):
                with pytest.raises(kakeya.KakeyaError) as raised:
                    await session.append([1])
                seen += traceback.format_exception(raised.value)
            generation = session.turn([1], max_tokens=2)
            await generation.all()
            seen.append(f"{generation!r} {vars(generation)!r}")
    seen += [span.to_json() for span in spans.get_finished_spans()]
    provider.shutdown()
    assert len(spans.get_finished_spans()) >= 6
    shown = "\n".join([*seen, caplog.text])
    assert "CreateSession" in shown
    assert "ApiKey(...)" in shown
    for part in (SECRET, SECRET[-43:], SECRET[-20:]):
        assert part not in shown


async def test_a_refused_key_is_final(runtime: ScriptedRuntime) -> None:
    runtime.before["CreateSession"] += [fails("UNAUTHENTICATED"), fails("PERMISSION_DENIED")]
    async with AsyncClient(runtime.address) as client:
        with pytest.raises(kakeya.Unauthenticated) as raised:
            await client.create_session(wait_for_capacity_seconds=5)
        assert raised.value.status is grpc.StatusCode.UNAUTHENTICATED
        with pytest.raises(kakeya.PermissionDenied):
            await client.create_session(wait_for_capacity_seconds=5)
    assert len(runtime.requests["CreateSession"]) == 2
