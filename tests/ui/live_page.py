"""What a person does on the live page."""

import time
from collections.abc import Callable
from typing import Any

PATIENT_MS = 120_000.0
"""What no machine takes, however busy."""


def ready(page: Any, **fields: Any) -> None:
    """Waits until there is a model to ask and the feed stands. Answers are the likeliest ones.

    Args:
        fields: more of each request.
    """
    asks_with(page, **{"temperature": 0, **fields})
    page.locator("#model option").first.wait_for(state="attached", timeout=PATIENT_MS)
    page.locator("#status.live").wait_for(timeout=PATIENT_MS)


def asks_with(page: Any, **fields: Any) -> None:
    """Adds fields to what the page asks its model from now on."""

    def add(route: Any) -> None:
        body = route.request.post_data_json
        route.continue_(post_data={**body, **fields} if body else None)

    page.unroute_all()
    page.route("**/ui/answers/*", add)


def until(page: Any, holds: Callable[[], bool]) -> None:
    """Waits until something holds. The page goes on meanwhile."""
    deadline = time.monotonic() + PATIENT_MS / 1000
    while not holds():
        assert time.monotonic() < deadline
        page.wait_for_timeout(50)


def drawn(page: Any) -> None:
    """Waits until what was done to the page is to be seen: it draws before its next picture, and not at once."""
    page.evaluate("() => new Promise(requestAnimationFrame)")


def say(page: Any, text: str) -> None:
    """Returns when the question is to be seen, and no answer of the branch before."""
    page.locator("#text").fill(text)
    page.locator("#text").press("Enter")
    drawn(page)


def say_untyped(page: Any, text: str) -> None:
    """As `say`, and the browser does not keep it: a text that is typed is a node for as long as it can be undone."""
    box = page.locator("#text")
    box.evaluate("(box, text) => { box.value = text; }", text)
    box.press("Enter")
    drawn(page)


def press(message: Any, name: str) -> None:
    """One of a message's buttons, by what a screen reader calls it."""
    message.get_by_role("button", name=name).click()
    drawn(message.page)


def answered(page: Any, number: int = 1) -> Any:
    """Waits for the answer of that number, and returns it as a whole."""
    answer = page.locator(".message.assistant").nth(number - 1)
    answer.wait_for(timeout=PATIENT_MS)
    answer.locator(".note").filter(has_text="session").wait_for(timeout=PATIENT_MS)
    return answer


def words(message: Any) -> str:
    return str(message.locator(".words").inner_text())


def note(message: Any) -> str:
    return str(message.locator(".note").inner_text())


def fact(page: Any, name: str) -> str:
    """Of the session that is shown."""
    return str(page.locator("#session-facts > div").filter(has_text=name).locator("dd").inner_text())


def number(text: str) -> int:
    """In "1,225 tokens" or "368,640 B"."""
    return int(text.split()[0].replace(",", ""))
