from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from kakeya_bench.quality.material.chat_template import ChatTemplate
from tests.unit.bench.quality.quality_checkpoint import CHATML, save_quality_checkpoint, save_tokenizer

UNTOUCHED_LOGS = structlog.get_config()


@pytest.fixture(autouse=True)
def untouched_logs() -> Iterator[None]:
    """The bench configures structlog for its process; the next test finds it as if none had run."""
    yield
    structlog.configure(**UNTOUCHED_LOGS)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a tokenizer."""
    path = tmp_path_factory.mktemp("tokenizer")
    save_tokenizer(path, CHATML)
    return path


@pytest.fixture(scope="module")
def template(directory: Path) -> ChatTemplate:
    return ChatTemplate(str(directory))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_quality_checkpoint(tmp_path_factory.mktemp("models") / "random")
