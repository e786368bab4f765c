"""An iteration over what a generation yields."""

from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from kakeya._async.generation import AsyncGeneration


class AsyncTokens:
    """An iteration over a generation; dropping it, as `break` does, cancels the call."""

    def __init__(self, generation: "AsyncGeneration") -> None:
        self._generation = generation

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> int:
        token_id = await self._generation.next_token()
        if token_id is None:
            raise StopAsyncIteration
        return token_id

    def __del__(self) -> None:
        self._generation.cancel()
