from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import word_tokenizer
from tests.unit.bench.compare.comparing import SHORT
from tests.unit.bench.compare.scripted_rival import ScriptedRival, says_chat, says_response, scripted_rival
from tests.unit.sdk.scripted_runtime import VOCAB_SIZE


@pytest.fixture
def rival() -> Iterator[ScriptedRival]:
    with scripted_rival() as rival:
        yield rival


@pytest.fixture
def other() -> Iterator[ScriptedRival]:
    with scripted_rival() as rival:
        yield rival


@pytest.fixture
def chatting(rival: ScriptedRival) -> ScriptedRival:
    """A server that answers chats from live sessions."""
    rival.usual = says_chat
    return rival


@pytest.fixture
def responding(rival: ScriptedRival) -> ScriptedRival:
    """Likewise, of responses that it stores."""
    rival.usual = says_response
    return rival


@pytest.fixture(scope="session")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer in which each word is a token, and a chat template."""
    return word_tokenizer.save(tmp_path_factory.mktemp("words"), VOCAB_SIZE)


@pytest.fixture
def flags(flags: list[str]) -> list[str]:
    """Short turns."""
    return [*flags, *SHORT]
