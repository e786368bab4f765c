"""Which models there are, and whose tokenizer each has."""

import asyncio
from pathlib import Path

import pytest

from kakeya.text.chat_tokenizer import ChatTokenizer
from kakeya_shared import installed_models
from kakeya_shared.contract.tokenizer_digest import tokenizer_digest
from kakeya_shared.process.service_process import StartError
from kakeya_stubs.v1 import runtime_pb2 as pb
from tests.unit.http_shim.shim import Shim
from tests.unit.http_shim.shim import shim as serving_shim
from tests.unit.sdk.scripted_runtime import ScriptedRuntime, fails, model


def listings_age(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the second were over for which a listing answers."""
    monkeypatch.setattr("kakeya_http_shim.models.served_models._LISTED_SECONDS", 0.0)


async def test_what_is_served(shim: Shim) -> None:
    listed = (await shim.http.get("/v1/models")).json()
    (only,) = listed["data"]
    assert listed["object"] == "list"
    assert (only["id"], only["object"], only["owned_by"]) == ("counter", "model", "kakeya")
    assert only["max_model_len"] == 20
    assert only["kakeya"] == {"sink": 4, "window": 16, "vocab_size": 1000}
    assert (await shim.http.get("/v1/models/counter")).json() == only


async def test_a_router_that_does_not_say_sink_and_window(runtime: ScriptedRuntime, tokenizer_dir: Path) -> None:
    runtime.models[:] = [pb.Model(name="counter", lane_token_count=20, vocab_size=1000, is_default=True)]
    async with serving_shim(runtime, tokenizer_dir) as shim:
        (only,) = (await shim.http.get("/v1/models")).json()["data"]
        assert only["max_model_len"] == 20
        assert only["kakeya"] == {"sink": None, "window": None, "vocab_size": 1000}


async def test_an_unknown_model(shim: Shim) -> None:
    for response in (await shim.http.get("/v1/models/other"), await shim.chat(model="other")):
        assert response.status_code == 404
        error = response.json()["error"]
        assert (error["code"], error["param"]) == ("model_not_found", "model")
        assert "'other'" in error["message"]


async def test_a_name_with_a_slash(runtime: ScriptedRuntime, tokenizer_dir: Path) -> None:
    runtime.models.append(model("owner/name"))
    async with serving_shim(runtime, tokenizer_dir, "--tokenizer", f"owner/name={tokenizer_dir}") as shim:
        assert (await shim.http.get("/v1/models/owner/name")).json()["id"] == "owner/name"


async def test_other_names(runtime: ScriptedRuntime, tokenizer_dir: Path) -> None:
    flags = ("--served-model-name", "gpt-4o=counter,mine=counter", "--served-model-name", "gone=away")
    async with serving_shim(runtime, tokenizer_dir, *flags) as shim:
        names = [each["id"] for each in (await shim.http.get("/v1/models")).json()["data"]]
        assert names == ["counter", "gpt-4o", "mine"]
        answer = (await shim.chat(model="gpt-4o", max_tokens=1)).json()
        assert answer["model"] == "gpt-4o"
        assert runtime.requests["CreateSession"][0].model == "counter"


async def test_names_by_pattern(runtime: ScriptedRuntime, tokenizer_dir: Path) -> None:
    runtime.models.append(model("claude-local"))
    flags = ("--tokenizer", f"claude-local={tokenizer_dir}", "--served-model-name", "claude-mine=counter")
    patterns = ("--model-alias", "claude-*-haiku=counter,claude-*=claude-local", "--model-alias", "gone-*=away")
    async with serving_shim(runtime, tokenizer_dir, *flags, *patterns) as shim:
        names = [each["id"] for each in (await shim.http.get("/v1/models")).json()["data"]]
        assert names == ["claude-local", "claude-mine", "counter"], "what is served"
        for name, meant in {
            "claude-4-haiku": "counter",
            "claude-opus": "claude-local",
            "claude-local": "claude-local",
            "claude-mine": "counter",
        }.items():
            answer = await shim.chat(model=name, max_tokens=1)
            assert answer.json()["model"] == name
            assert runtime.requests["CreateSession"][-1].model == meant
            assert (await shim.http.get(f"/v1/models/{name}")).json()["id"] == name
        for name in ("Claude-opus", "other", "gone-1"):
            assert (await shim.chat(model=name)).status_code == 404
            assert (await shim.http.get(f"/v1/models/{name}")).status_code == 404


async def test_a_model_whose_workers_are_away(shim: Shim, monkeypatch: pytest.MonkeyPatch) -> None:
    await shim.chat(max_tokens=1)
    shim.runtime.models.clear()
    listings_age(monkeypatch)
    response = await shim.chat(model="counter")
    assert (response.status_code, response.json()["error"]["code"]) == (503, "no_worker")


async def test_several_models_and_no_default(runtime: ScriptedRuntime, tokenizer_dir: Path) -> None:
    runtime.models[:] = [model("counter"), model("other")]
    async with serving_shim(runtime, tokenizer_dir) as shim:
        response = await shim.chat()
        assert (response.status_code, response.json()["error"]["param"]) == (400, "model")
        assert "counter, other" in response.json()["error"]["message"]


async def test_a_model_without_a_tokenizer(runtime: ScriptedRuntime, tokenizer_dir: Path) -> None:
    runtime.models.append(model("other"))
    async with serving_shim(runtime, tokenizer_dir) as shim:
        assert [each["id"] for each in (await shim.http.get("/v1/models")).json()["data"]] == ["counter"]
        response = await shim.chat(model="other")
        assert (response.status_code, response.json()["error"]["code"]) == (503, "no_tokenizer")
        assert "--tokenizer other=DIR_OR_HUB_ID" in response.json()["error"]["message"]


async def test_the_digest_is_checked(
    runtime: ScriptedRuntime, tokenizer_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = tokenizer_digest(tokenizer_dir)
    runtime.models[0].tokenizer_digest = digest
    async with serving_shim(runtime, tokenizer_dir) as shim:
        assert (await shim.chat(max_tokens=1)).status_code == 200
        runtime.models[0].tokenizer_digest = "0" * 64
        listings_age(monkeypatch)
        for _ in range(2):
            response = await shim.chat(max_tokens=1)
            assert (response.status_code, response.json()["error"]["code"]) == (503, "tokenizer_mismatch")


async def test_a_tokenizer_of_more_ids_than_the_model_knows(runtime: ScriptedRuntime, tokenizer_dir: Path) -> None:
    runtime.models[:] = [pb.Model(name="counter", lane_token_count=20, vocab_size=100, is_default=True)]
    async with serving_shim(runtime, tokenizer_dir) as shim:
        response = await shim.chat(max_tokens=1)
        assert (response.status_code, response.json()["error"]["code"]) == (503, "tokenizer_mismatch")


async def test_an_installed_model_brings_its_tokenizer(
    runtime: ScriptedRuntime, tokenizer_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installed_models, "names", lambda: ["mine"])
    monkeypatch.setattr(installed_models, "directory", lambda _: tokenizer_dir)
    runtime.models[:] = [model("mine", is_default=True)]
    async with serving_shim(runtime, tokenizer_dir) as shim:
        answers = await asyncio.gather(*[shim.chat(max_tokens=1) for _ in range(4)])
        assert [answer.status_code for answer in answers] == [200] * 4


async def test_a_listing_answers_for_a_while(shim: Shim, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kakeya_http_shim.models.served_models._LISTED_SECONDS", 600.0)
    for _ in range(5):
        await shim.chat(max_tokens=1)
    assert len(shim.runtime.requests["ListModels"]) == 1
    monkeypatch.setattr("kakeya_http_shim.models.served_models._LISTED_SECONDS", 0.0)
    await shim.chat(max_tokens=1)
    assert len(shim.runtime.requests["ListModels"]) > 1


async def test_who_asks_at_the_same_time_asks_once(shim: Shim, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kakeya_http_shim.models.served_models._LISTED_SECONDS", 600.0)
    await asyncio.gather(*[shim.http.get("/v1/models") for _ in range(12)])
    assert len(shim.runtime.requests["ListModels"]) == 1


async def test_a_failed_listing_is_not_kept(shim: Shim) -> None:
    shim.runtime.before["ListModels"].append(fails("INTERNAL"))
    answers = [await shim.http.get("/v1/models") for _ in range(2)]
    assert [answer.status_code for answer in answers] == [500, 200]


async def test_listings_are_each_keys_own(runtime: ScriptedRuntime, tokenizer_dir: Path) -> None:
    async with serving_shim(runtime, tokenizer_dir) as shim:
        assert (await shim.http.get("/v1/models", headers={"authorization": "Bearer good"})).status_code == 200
        runtime.before["ListModels"].append(fails("UNAUTHENTICATED"))
        response = await shim.http.get("/v1/models", headers={"authorization": "Bearer bad"})
        assert response.status_code == 401
        assert [sent.get("authorization") for sent in runtime.metadata["ListModels"]] == ["Bearer good", "Bearer bad"]


async def test_listings_are_bounded(
    runtime: ScriptedRuntime, tokenizer_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kakeya_http_shim.models.served_models._MAX_KEYS", 2)
    async with serving_shim(runtime, tokenizer_dir) as shim:
        for key in ("a", "b", "c", "c", "a"):
            await shim.http.get("/v1/models", headers={"authorization": f"Bearer {key}"})
        assert len(runtime.requests["ListModels"]) == 4, "the oldest was forgotten, the newest was not"


async def test_readiness(runtime: ScriptedRuntime, tokenizer_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving_shim(runtime, tokenizer_dir) as shim:
        await shim.loaded()
        assert (await shim.http.get("/readyz")).json() == {"status": "ok"}
        runtime.models.clear()
        listings_age(monkeypatch)
        response = await shim.http.get("/readyz")
        assert (response.status_code, response.json()["error"]["code"]) == (503, "no_worker")
        listings_age(monkeypatch)
        runtime.before["ListModels"].append(fails("UNAUTHENTICATED"))
        assert (await shim.http.get("/readyz")).status_code == 200, "who asks for keys is there"
        await asyncio.to_thread(runtime.stop)
        response = await shim.http.get("/readyz", timeout=60)
        assert response.status_code == 503


async def test_not_ready_with_the_tokenizer_of_another_model(runtime: ScriptedRuntime, tokenizer_dir: Path) -> None:
    runtime.models[0].tokenizer_digest = "0" * 64
    async with serving_shim(runtime, tokenizer_dir) as shim:
        await shim.loaded()
        response = await shim.http.get("/readyz")
        assert (response.status_code, response.json()["error"]["code"]) == (503, "tokenizer_mismatch")
        runtime.models.append(model("other"))
        runtime.models[1].vocab_size = 1000
    async with serving_shim(runtime, tokenizer_dir, "--tokenizer", f"other={tokenizer_dir}") as shim:
        await shim.loaded()
        assert (await shim.http.get("/readyz")).status_code == 200, "one can be used"


async def test_keys_are_passed_on(shim: Shim) -> None:
    response = await shim.http.post(
        "/v1/completions", json={"prompt": "a", "max_tokens": 1}, headers={"authorization": "Bearer mine"}
    )
    assert response.status_code == 200
    for method in ("ListModels", "CreateSession", "AppendTokens", "Generate"):
        assert shim.runtime.metadata[method][-1]["authorization"] == "Bearer mine", method


async def test_a_chat_template_of_a_file_takes_the_place_of_the_tokenizers(
    runtime: ScriptedRuntime, tokenizer_dir: Path, tmp_path: Path
) -> None:
    file = tmp_path / "own.jinja"
    file.write_text("{% for message in messages %}<{{ message.role }}> {{ message.content }}{% endfor %}")
    async with serving_shim(runtime, tokenizer_dir, "--chat-template", f"counter={file}") as shim:
        assert (await shim.chat(max_tokens=1)).status_code == 200
        (request,) = runtime.requests["AppendTokens"]
        sent = ChatTokenizer(str(tokenizer_dir)).decode(list(request.token_ids))
        assert sent.startswith("<user> ")


@pytest.mark.parametrize(
    ("model", "source", "reason"),
    [
        ("counter", "{% for %}", "own.jinja is not Jinja: line 1: "),
        ("counter", "always the same", "own.jinja writes a user's message neither"),
        ("other", "{{ messages }}", "none was named for it (--tokenizer other=DIR_OR_HUB_ID)"),
    ],
)
async def test_a_bad_chat_template_is_refused_at_the_start(
    runtime: ScriptedRuntime, tokenizer_dir: Path, tmp_path: Path, model: str, source: str, reason: str
) -> None:
    (tmp_path / "own.jinja").write_text(source)
    with pytest.raises(StartError) as caught:
        async with serving_shim(runtime, tokenizer_dir, "--chat-template", f"{model}={tmp_path}/own.jinja"):
            pytest.fail("it serves")
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)
