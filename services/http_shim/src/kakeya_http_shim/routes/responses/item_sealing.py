"""Items that only this server can read: compactions, and what is encrypted of thoughts."""

import asyncio
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from kakeya import AsyncClient
from kakeya_http_shim.problems import ApiError
from kakeya_http_shim.requests.messages import Message
from kakeya_http_shim.responses_api.as_chat import last_compaction, own_items
from kakeya_http_shim.responses_api.compaction import PURPOSE, Compaction, UnreadableCompaction
from kakeya_http_shim.responses_api.input_items import CompactionItem, InputItem
from kakeya_http_shim.responses_api.response_object import OutputCompaction
from kakeya_http_shim.responses_api.responses_request import ResponsesRequest
from kakeya_http_shim.routes.sealing import Seals, Unsealable

_THOUGHT: Final = "thought"
_KEY_BYTES: Final = 16


@dataclass(frozen=True)
class ItemSealing:
    """By the keys of this server, or of others that the runtime keeps."""

    seals: Seals

    async def unsealed(
        self, given: ResponsesRequest, before: Sequence[InputItem], client: AsyncClient, api_key: str
    ) -> dict[str, Sequence[Message]]:
        """The messages that the last compaction item stands for, by its content; {} where there is none.

        Raises:
            ApiError: nobody can read it.
        """
        own = own_items(given)
        items = [*before, *own]
        index = last_compaction(items)
        item = items[index] if index is not None else None
        if index is None or not isinstance(item, CompactionItem):
            return {}
        try:
            data = await self.seals.opened(client, api_key, item.encrypted_content, PURPOSE)
            return {item.encrypted_content: Compaction.unpacked(data).messages}
        except (Unsealable, UnreadableCompaction) as error:
            where = (
                f"input[{index - len(before)}].encrypted_content" if index >= len(before) else "previous_response_id"
            )
            message = f"{where}: nobody here can read it: it is none of this server's, or its key is gone"
            raise ApiError(400, message, param=where, code="invalid_encrypted_content") from error

    async def compaction(self, compaction: Compaction, client: AsyncClient, api_key: str) -> OutputCompaction:
        """The item that a client sends in the place of a conversation. Raises ApiError where the runtime fails."""
        seal = await self.seals.seal(client, api_key)
        sealed = await asyncio.to_thread(lambda: seal.sealed(compaction.packed(), PURPOSE))
        item_id = f"cmp_{secrets.token_hex(_KEY_BYTES)}"
        return OutputCompaction(type="compaction", id=item_id, encrypted_content=sealed)

    async def thoughts(self, client: AsyncClient, api_key: str) -> Callable[[str], str]:
        """Encrypts thoughts. Raises ApiError where the runtime fails."""
        seal = await self.seals.seal(client, api_key)
        return lambda text: seal.sealed(text.encode(errors="surrogatepass"), _THOUGHT)
