"""From the release before to this one and back, half by half, under load: clients go on, and nothing is lost."""

import asyncio
import io
import os
import subprocess
import tarfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.end_to_end.containers.engine import (
    NEEDS_ENGINE,
    PROFILES,
    ROOT,
    TAG,
    Published,
    compose,
    with_profiles,
)
from tests.end_to_end.containers.scaled import HALVES, SCALE, clients_of, serving, under_load
from tests.end_to_end.load import NUM_GENERATED, ChatTalk, SessionTalk, held_against, nothing_is_lost

pytestmark = [*NEEDS_ENGINE, pytest.mark.heavy]
# Where there is no tag yet: a commit in front of the fleet's cache, draft models, int8 KV and the shim's Responses.
FIRST = "3b3ed1d9"
TAG_BEFORE = "test-before"
# Of streams, in tokens. The long ones take seconds, so that each stop meets some. A router of FIRST that stops refuses
# new calls for as long as it has streams, on connections that stay, so that its stops meet short ones.
SHORT, LONG = (NUM_GENERATED,) * 2, (NUM_GENERATED, 1_500)
SAID_SLOWLY = ("My name is Julia.", "What is 6 + 7?", "What is my name?", "Hello again!", "What is 1 + 1?")


@dataclass(frozen=True)
class Release:
    """Images, and the compose.yaml that came with them."""

    sources: Path
    tag: str
    published: Published

    def compose(self, *arguments: str) -> None:
        environment = {"KAKEYA_VERSION": self.tag} | self.published.environment
        compose(*SCALE, *arguments, environment=environment, sources=self.sources)

    def up(self, *services: str) -> None:
        """These in its version, and nothing else; what runs in another one is stopped first."""
        self.compose("up", "-d", "--wait", "--no-build", "--no-deps", *services)


def name_before() -> str:
    """The commit or tag to come from: what was asked for, else the last release."""
    if asked := os.environ.get("KAKEYA_TEST_BEFORE"):
        return asked
    last = subprocess.run(
        ["git", "-C", str(ROOT), "describe", "--tags", "--abbrev=0", "--match", "v*", "HEAD^"],
        capture_output=True,
        text=True,
    )
    return last.stdout.strip() or FIRST


@pytest.fixture(scope="module")
def releases(stack: Published, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Release, Release]]:
    """The one before, which serves on an empty Redis, and this one."""
    archive = subprocess.run(["git", "-C", str(ROOT), "archive", "--format=tar", name_before()], capture_output=True)
    if archive.returncode:
        pytest.skip(f"a clone without its history: {archive.stderr.decode().strip()}")
    sources = tmp_path_factory.mktemp("before")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(sources, filter="fully_trusted")  # our own; modes as git has them
    before, now = Release(sources, TAG_BEFORE, stack), Release(ROOT, TAG, stack)
    before.compose("build", "router", "worker-1", "http")
    now.compose("build", "balancer")
    compose(*with_profiles(*PROFILES), "down", "-v")
    try:
        before.up("redis", *(service for half in HALVES for service in half))
        now.up("balancer")
        yield before, now
    finally:
        compose(*with_profiles(*PROFILES), "down", "-v")


@dataclass(frozen=True)
class Waiting:
    """Conversations that take a turn when they are told, and wait while services are replaced."""

    session: SessionTalk
    chat: ChatTalk

    async def turn(self) -> None:
        await self.session.turn()
        await self.chat.turn()


@asynccontextmanager
async def waiting(published: Published) -> AsyncIterator[Waiting]:
    """In the end they are held against undisturbed ones; each turn of the chat but the first was in its session."""
    async with clients_of(published) as (client, chats):
        made = Waiting(SessionTalk(await client.create_session()), ChatTalk(chats, said=SAID_SLOWLY))
        await made.turn()
        yield made
        await nothing_is_lost([made.session])
        await held_against(SessionTalk(await client.create_session()), [made.session])
        await held_against(ChatTalk(chats, said=SAID_SLOWLY), [made.chat])
        assert made.chat.states == ["new", *["continued"] * (len(made.chat.states) - 1)]


async def test_a_fleet_goes_from_the_release_before_to_this_one_and_back(releases: tuple[Release, Release]) -> None:
    before, now = releases
    await serving(*(service for half in HALVES for service in half))
    async with waiting(before.published) as idle:
        for release, lengths in ((now, SHORT), (before, LONG)):
            async with under_load(before.published, lengths) as load:
                for half in HALVES:
                    await asyncio.to_thread(release.up, *half)
                    await load.advance()
                    await serving(*half)
                    await idle.turn()
