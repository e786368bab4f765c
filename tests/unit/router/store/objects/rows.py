"""Objects of a tenant: every outcome of the scripts that change them."""

from kakeya_router.store.outcomes import UpdateObject
from tests.unit.router.store.script_steps import NOTHING
from tests.unit.router.store.script_world import Row, Rows, World, step


@step
async def store(world: World, data: bytes) -> None:
    assert await world.objects.store("t", "a", data, ttl_seconds=60, max_bytes=0)
    world.redis.answers.pop()  # it is no outcome


@step
async def update(
    world: World, data: bytes, version: int = 1, *, appends: bool = False, most: int = 9, of_all: int = 0
) -> UpdateObject:
    outcome, _ = await world.objects.update(
        "t", "a", data, version=version, appends=appends, ttl_seconds=60, max_object_bytes=most, max_bytes=of_all
    )
    return outcome


STORED = store(b"one")
CHANGED = STORED + update(b"two")

ROWS: Rows = {
    "update_object": [
        Row(NOTHING, update(b"two"), "missing"),
        Row(STORED, (update(b"two", 2), update(b"two", 2, appends=True)), "changed"),
        Row(CHANGED, update(b"two", 1), "changed"),
        Row(STORED, (update(bytes(10)), update(bytes(7), appends=True)), "large"),
        Row(STORED, (update(b"four", of_all=3), update(b"4", appends=True, of_all=3)), "quota"),
        Row(STORED, update(b"four"), "updated",
            {"object": "four", "sizes": {"a": "4", "total:": "4", "changes:a": "1"}}, gives=[2]),
        Row(STORED, update(b"four", appends=True, of_all=7), "updated",
            {"object": "onefour", "sizes": {"a": "7", "total:": "7", "changes:a": "1"}}, gives=[2]),
        Row(CHANGED, update(b"4", 2), "updated",
            {"object": "4", "sizes": {"a": "1", "total:": "1", "changes:a": "2"}}, gives=[3]),
    ],
}  # fmt: skip
