"""Chromium drives the live page: it chats, sees tokens stream, the flat line, branches, and a reload in mid-stream."""

import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests.integration.credentials import operator_of
from tests.integration.http_stack import http_stack
from tests.integration.open_http import ENDLESS
from tests.ui.live_page import (
    PATIENT_MS,
    answered,
    asks_with,
    fact,
    note,
    number,
    press,
    ready,
    say,
    say_untyped,
    until,
    words,
)

pytestmark = pytest.mark.heavy

NUM_TURNS = int(os.environ.get("KAKEYA_TEST_UI_TURNS", "1000"))
PICTURES = os.environ.get("KAKEYA_TEST_UI_PICTURES", "")
"""Where screenshots go; empty: none are taken."""
QUESTIONS = (
    "Hello!",
    "My name is Laura.",
    "What is my name?",
    "My train leaves at 7:45.",
    "When does my train leave?",
    "What is 6 + 7?",
)


LATE_FRAMES = """(late) => {
    const request = window.requestAnimationFrame.bind(window);
    window.requestAnimationFrame = (draw) => setTimeout(() => request(draw), late);
}"""


def test_it_chats_and_shows_the_session(page: Any) -> None:
    ready(page)
    say(page, "My name is Laura.")
    answered(page, 1)
    say(page, "What is my name?")
    second = answered(page, 2)
    assert "Laura" in words(second)
    assert "session continued" in note(second)
    page.locator("#session-body").wait_for(timeout=PATIENT_MS)
    assert fact(page, "Sinks and window") == "4 + 236"
    assert page.locator(".lane.mine").count() == 1
    assert page.locator('#session-list button[aria-pressed="true"]').count() == 1


def test_tokens_are_seen_as_they_come(page: Any) -> None:
    ready(page, **LONG)
    seen: list[int] = []
    page.expose_function("grew", lambda length: seen.append(length))
    page.evaluate(
        """() => new MutationObserver(() => {
            const words = document.querySelector(".message.assistant .words");
            if (words) window.grew(words.textContent.length);
        }).observe(document.getElementById("log"), { subtree: true, childList: true, characterData: true })"""
    )
    say(page, "Tell me about rain, please, and about the sea, and the mountains.")
    length = len(words(answered(page)))
    until(page, lambda: seen[-1:] == [length])
    assert seen == sorted(seen)
    assert len({*seen}) > 3


def test_history_grows_and_memory_does_not(page: Any) -> None:
    ready(page)
    points: list[tuple[int, int]] = []
    for turn in range(1, 25):
        say(page, QUESTIONS[turn % len(QUESTIONS)])
        answered(page, turn)
        points.append(_point_after(page, points[-1][0] if points else 0))
    lengths, live = zip(*points, strict=True)
    assert list(lengths) == sorted(lengths)
    full = [(length, bytes_live) for length, bytes_live in points if length > 240]
    assert len(full) >= 5
    assert len({bytes_live for _, bytes_live in full}) == 1
    assert full[0][1] == max(live)
    assert full[-1][0] > full[0][0] + 100
    until(page, lambda: _retained(page).startswith(f"Of {number(fact(page, 'History')):,} tokens it sees 0 to "))
    assert page.locator("#retained i").count() == 2
    assert page.locator("#memory-chart canvas").count() == 1
    assert page.locator("#turns-chart canvas").count() == 1
    if PICTURES:
        _take_pictures(page, Path(PICTURES))


def _take_pictures(page: Any, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    page.evaluate("() => document.activeElement.blur()")
    page.evaluate("() => window.scrollTo(0, 0)")
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.wait_for_timeout(300)
        page.screenshot(path=folder / f"live-page-{scheme}.png")


@pytest.mark.parametrize("frame_ms", [0, 400])
def test_it_regenerates_and_branches(page: Any, frame_ms: int) -> None:
    """Also where the page draws late, as it does on a busy machine: what is read is not what was there before."""
    page.evaluate(LATE_FRAMES, frame_ms)
    ready(page)
    say(page, "My name is Laura.")
    answered(page, 1)
    say(page, "What is my name?")
    press(answered(page, 2), "Regenerate")
    again = answered(page, 2)
    assert again.locator(".tools span", has_text="2/2").count() == 1
    press(again, "Branch before")
    assert again.locator(".tools span", has_text="1/2").count() == 1
    first = page.locator(".message.user").first
    press(first, "Edit")
    say(page, "My name is Julia.")
    answered(page, 1)
    assert page.locator(".message").count() == 2
    say(page, "What is my name?")
    assert "Julia" in words(answered(page, 2))
    press(first, "Branch before")
    assert "Laura" in words(page.locator(".message").nth(3))


def _point_after(page: Any, length: int) -> tuple[int, int]:
    """History and live bytes of the session, once the page has heard that it is longer than it was."""
    until(page, lambda: fact(page, "State") != "busy" and number(fact(page, "History")) > length)
    return number(fact(page, "History")), number(fact(page, "KV live"))


def _retained(page: Any) -> str:
    return str(page.locator("#retained").get_attribute("aria-label"))


LONG: dict[str, Any] = {"max_tokens": 3000, "temperature": 1, "seed": 7, "logit_bias": ENDLESS}
"""Of an answer that takes seconds, and ends by its length."""


def test_a_reload_in_mid_stream_goes_on(page: Any) -> None:
    ready(page, **LONG)
    say(page, "Tell me a long story.")
    page.locator(".message.running .words").filter(has_text="a").wait_for(timeout=PATIENT_MS)
    before = words(page.locator(".message.assistant"))
    page.reload()
    page.locator(".message.running").wait_for(timeout=PATIENT_MS)
    answer = answered(page)
    after = words(answer)
    assert after.startswith(before)
    assert len(after) > len(before)
    assert "failed" not in note(answer)


def test_it_can_be_stopped(page: Any) -> None:
    ready(page, **LONG)
    say(page, "Tell me a long story.")
    page.locator(".message.running .words").filter(has_text="a").wait_for(timeout=PATIENT_MS)
    page.keyboard.press("Escape")
    page.locator(".note", has_text="stopped").wait_for(timeout=PATIENT_MS)
    asks_with(page, temperature=0)
    say(page, "Hello!")
    answered(page, 2)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1360, 390])
def test_axe_finds_no_serious_fault(page: Any, axe: str, scheme: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 844})
    page.emulate_media(color_scheme=scheme)
    ready(page)
    say(page, "Hello!")
    answered(page)
    page.locator("#session-body").wait_for(timeout=PATIENT_MS)
    page.wait_for_timeout(600)
    page.evaluate(axe)
    found = page.evaluate("() => axe.run()")["violations"]
    serious = [
        (each["id"], [node["html"] for node in each["nodes"]])
        for each in found
        if each["impact"] in ("serious", "critical")
    ]
    assert serious == []
    assert page.evaluate("() => document.documentElement.scrollWidth <= window.innerWidth")


def test_the_page_does_not_grow(page: Any) -> None:
    """A conversation's texts stay, some hundred bytes a turn; elements, charts and what was seen of sessions do not."""
    ready(page)
    devtools = page.context.new_cdp_session(page)
    devtools.send("Performance.enable")
    begun = max(40, NUM_TURNS // 10)  # all that is shown of a conversation is there
    sizes = {}
    for turn in range(1, NUM_TURNS + 1):
        say_untyped(page, QUESTIONS[turn % len(QUESTIONS)])
        answered(page, min(turn, 30))
        page.locator(".message.running").wait_for(state="detached", timeout=PATIENT_MS)
        if turn in (begun, NUM_TURNS):
            sizes[turn] = _size(devtools)
    (nodes, heap), (nodes_then, heap_then) = sizes[begun], sizes[NUM_TURNS]
    kept = page.evaluate("() => JSON.parse(sessionStorage.getItem('kakeya.conversation')).nodes.length")
    assert kept == 1 + 2 * NUM_TURNS, "each question was asked and answered"
    assert nodes_then <= 1.2 * nodes, sizes
    assert heap_then - heap <= 1e6 + 2000 * NUM_TURNS, sizes


def _size(devtools: Any) -> tuple[float, float]:
    """Nodes of the document, and bytes of its heap."""
    for _ in range(3):
        devtools.send("HeapProfiler.collectGarbage")
        time.sleep(0.3)
    found = {each["name"]: each["value"] for each in devtools.send("Performance.getMetrics")["metrics"]}
    return found["Nodes"], found["JSHeapUsedSize"]


def test_a_key_is_asked_for_and_shows_its_tenants_sessions_only(browser: Any, tmp_path: Path) -> None:
    with http_stack(tmp_path, "--live-sessions=on") as keyed, operator_of(keyed.runtime) as operator:
        address = f"http://{keyed.shim.address}/ui"
        mine, foreign = (_asked(browser, address, operator.make_key(tenant)) for tenant in ("acme", "zeta"))
        say(mine, "My name is Laura.")
        answered(mine)
        mine.locator("#session-list button").wait_for(timeout=PATIENT_MS)
        foreign.locator(".tile", has_text="Lanes held").get_by_text("1", exact=True).wait_for(timeout=PATIENT_MS)
        foreign.wait_for_timeout(1500)
        assert foreign.locator("#session-list button").count() == 0
        content = foreign.content()
        assert "acme" not in content
        assert "Laura" not in content
        assert mine.locator("#session-list .title").first.inner_text().endswith("acme")


def _asked(browser: Any, address: str, key: str) -> Any:
    page = browser.new_context().new_page()
    page.goto(address)
    page.locator("#key-dialog[open]").wait_for(timeout=PATIENT_MS)
    page.locator("#key").fill("kakeya_key_0123456789ab_" + "x" * 43)
    page.locator("#key").press("Enter")
    page.locator("#key-problem").wait_for(timeout=PATIENT_MS)
    page.locator("#key").fill(key)
    page.locator("#key").press("Enter")
    ready(page)
    return page
