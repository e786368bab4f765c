"""A real Chromium in front of a whole stack; `make test-ui` installs what it needs."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kakeya_shared import installed_models
from tests.integration.processes import PATIENT, Runtime, runtime

MODEL = "kakeya-nano"
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session")
def chromium() -> str:
    """Where it is."""
    found = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if found is None:
        pytest.skip("chromium is not installed")
    return found


@pytest.fixture(scope="session")
def browser(chromium: str) -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed; make test-ui installs it")
    with api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core."""
    path = os.environ.get("KAKEYA_TEST_AXE")
    if not path:
        pytest.skip("axe-core is not installed; make test-ui installs it")
    return Path(path).read_text()


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    """kakeya-nano on twelve lanes of 240 tokens; asks nobody for a key."""
    directory = tmp_path_factory.mktemp("stack")
    with runtime(installed_models.directory(MODEL), directory, num_workers=0, environment=PATIENT) as made:
        made.start_worker("--weights=int8", "--window=236", lanes=12)
        made.wait_for_workers(1)
        made.start_http()
        yield made


@pytest.fixture
def page(browser: Any, stack: Runtime) -> Iterator[Any]:
    """The live page; an error on its console fails the test."""
    context = browser.new_context(viewport={"width": 1360, "height": 900})
    opened = context.new_page()
    errors: list[str] = []
    opened.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    opened.on("pageerror", lambda error: errors.append(str(error)))
    opened.goto(f"http://{stack.shims[0].address}/ui")
    yield opened
    context.close()
    assert errors == []
