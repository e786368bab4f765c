"""Messages of a channel, over a connection of its own."""

import random
from collections.abc import AsyncGenerator
from contextlib import aclosing

from redis import exceptions
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from kakeya_router.store.servers.redis_errors import NO_ANSWER
from kakeya_router.store.servers.sentinels import Sentinels
from kakeya_router.store.servers.slots import Slots
from kakeya_shared.errors.tree import StoreUnavailable
from kakeya_shared.settings.redis_url import Kind, RedisUrl

# Nobody may have anything to say for longer; then it is looked whether the connection is due for a ping.
_LOOK_SECONDS = 1.0
# Pings, so that a connection that died without a word is noticed at some time; who waits must not rely on it.
_PING_SECONDS = 5.0


async def messages(url: str, timeout_seconds: float, channel: str) -> AsyncGenerator[str, None]:
    """What is published from now on; an empty text first, once the subscription stands.

    Raises:
        StoreUnavailable: Redis does not answer, or the connection is cut; messages may have been missed.
    """
    try:
        server_url = await _subscribed(url, timeout_seconds)
    except NO_ANSWER as error:
        raise StoreUnavailable(f"Redis does not answer ({type(error).__name__})") from error
    redis = Redis.from_url(
        server_url,
        decode_responses=True,
        protocol=2,
        socket_connect_timeout=timeout_seconds,
        socket_timeout=timeout_seconds,
        health_check_interval=_PING_SECONDS,
        retry=Retry(NoBackoff(), 0),
    )
    async with aclosing(redis), aclosing(redis.pubsub()) as pubsub:
        try:
            await pubsub.subscribe(channel)
            while True:
                message = await pubsub.get_message(timeout=_LOOK_SECONDS)
                if message is not None and message["type"] == "subscribe":
                    yield ""
                elif message is not None and message["type"] == "message":
                    yield message["data"]
        except (exceptions.RedisError, OSError) as error:
            raise StoreUnavailable(f"Redis does not answer ({type(error).__name__})") from error


async def _subscribed(url: str, timeout_seconds: float) -> str:
    """URL of a server that passes messages on: the primary; of a Cluster any node, for what one is told all are."""
    parsed = RedisUrl.parse(url)
    if parsed.kind is Kind.SENTINEL:
        return (await Sentinels(parsed, timeout_seconds).primary()).url
    if parsed.kind is Kind.CLUSTER:
        primaries = (await Slots(parsed, timeout_seconds).read()).primaries
        return random.choice(primaries or [parsed.server(*parsed.places[0])])  # one that is away is chosen again seldom
    return url
