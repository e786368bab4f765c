"""A conversation of the demo with tools: over HTTP, as OpenAI clients have them, and all of it is sent each turn."""

import asyncio
from dataclasses import dataclass, field

from kakeya import AsyncClient
from kakeya_local.demo.conversation import MAX_ANSWER_TOKENS
from kakeya_local.demo.http_exchange import Completion, Message, complete
from kakeya_local.demo.report import Reading
from kakeya_local.demo.scripts import Line, Script
from kakeya_local.demo.sight import Sight
from kakeya_local.demo.turn import Turn
from kakeya_local.stack.planning.http_entrance import HttpEntrance


@dataclass
class ToolConversation:
    """Whom to ask, and what was said.

    Attributes:
        number: counted from 1.
        model: as it is served.
        client: is asked over gRPC what the session holds.
        sink, window: of the session, whose system prompt and tools are pinned.
        num_pinned: tokens of these.
    """

    number: int
    script: Script
    entrance: HttpEntrance
    model: str
    client: AsyncClient
    sink: int
    window: int
    num_pinned: int
    _messages: list[Message] = field(init=False)
    _latest: Completion | None = field(default=None, init=False)
    _sight: Sight = field(init=False)

    def __post_init__(self) -> None:
        self._messages = [{"role": "system", "content": self.script.system}]
        self._sight = Sight(self.sink, self.num_pinned)

    @property
    def session_id(self) -> str:
        """Of the session that it is in; "" where that has ended with the last answer."""
        return self._latest.session_id if self._latest else ""

    async def take_turn(self, number: int) -> tuple[Turn, list[Reading]]:
        """Says the next line and takes the answer; after the script's last line comes its first.

        Returns:
            The turn and what info says of the session, where that goes on.

        Raises:
            KakeyaError, StackError: a call failed, a request was refused or broke off.
        """
        line, before = self.script.lines[(number - 1) % len(self.script.lines)], self._latest
        self._messages += self._asked(line)
        tools = self.script.tools
        said = await asyncio.to_thread(complete, self.entrance, self.model, self._messages, MAX_ANSWER_TOKENS, tools)
        self._messages.append(said.message)
        self._latest = said
        readings = await self._readings(number)
        length, forgotten = (before.history, before.evicted) if before else (0, 0)
        hidden = max(0, said.prompt_tokens - self.sink - self.window)
        still_in_sight = bool(line.forgotten) and self._sight.sees(line.forgotten, hidden)
        answer = " ".join([*filter(None, [said.text]), *map(str, said.calls)])
        self._sight.add(f"{line.text} {answer}", length, said.history)
        return Turn(
            conversation=self.number,
            turn=number,
            history_length=said.history,
            new_tokens=said.history - length,
            generated_tokens=said.completion_tokens,
            prefill_seconds=None,
            decode_seconds=None,
            kv_live_bytes=readings[0].kv_live_bytes if readings else 0,
            user=f"[tool] {line.text}" if line.is_result else line.text,
            answer=answer,
            expected=line.expects,
            evicted_tokens=said.evicted - forgotten,
            forgotten_tokens=said.evicted,
            still_in_sight=still_in_sight,
            completion=said,
        ), readings

    def _asked(self, line: Line) -> list[Message]:
        """A line as messages. What no call has asked for is said by the user."""
        calls = self._latest.calls if self._latest else ()
        if not calls:
            return [{"role": "user", "content": line.text}]
        # A call that the script does not expect is answered, too: a conversation does not go on without.
        result = line.text if line.is_result else '{"error": "not known"}'
        told = [{"role": "tool", "tool_call_id": call.id, "content": result} for call in calls]
        return [*told, *([] if line.is_result else [{"role": "user", "content": line.text}])]

    async def _readings(self, number: int) -> list[Reading]:
        if not self.session_id:
            return []
        info = await self.client.session(self.session_id).info()
        return [Reading(self.number, number, "info", info.history_length, info.kv_live_bytes)]
