"""The names that a conversation's places have in the runtime: tags, by which its session is found again.

A tag is a hash of all that was said up to its place. A chain begins with what every message depends on, the root, and
each message adds a link; so equal tags are equal conversations up to there, under one model, template and window.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from typing import Any, Final, Literal

from kakeya_http_shim.conversations.fingerprints import fingerprint
from kakeya_http_shim.requests.compacted_message import CompactedMessage
from kakeya_http_shim.requests.messages import Message

MAX_TAGS: Final = 64
"""Of one FindSession."""

_ROOT, _LINK, _HEAD, _START, _END = (f"kakeya {kind}".encode() for kind in ("root", "link", "head", "start", "end"))

Kind = Literal["start", "end", "head"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A place at which a request may go on.

    Attributes:
        tag: its name.
        kind: where an answer begins, where one ended, or the end of the head.
        index: which message the answer is; the number of messages where it is the one that is asked for. 0 of a head.
        closed: of an end: the token that the template writes behind an answer is there.
    """

    tag: bytes
    kind: Kind
    index: int
    closed: bool = False


def root(*, head: str, templates: Sequence[str], tokenizer: str, model: str, options: Mapping[str, Any]) -> bytes:
    """What a chain begins with.

    Args:
        head: what the template writes before the first message that is not of the head, with a fixed clock.
        templates: their sources, all that may write a part of the conversation.
        tokenizer: its digest.
        options: all that a session is created with and that changes what is said in it, such as `sink`, `window`,
            `pin`, `retention`, `on_overflow`. JSON values.
    """
    return _hash(_ROOT, _json([head, list(templates), tokenizer, model, dict(options)]))


def link(before: bytes, message: Message) -> bytes:
    """The chain's next element, behind this message."""
    return _hash(_LINK, before + fingerprint(message))


def chain(root: bytes, messages: Sequence[Message], known: Sequence[bytes] = ()) -> list[bytes]:
    """The root, and behind each message one: the element at `i` stands before message `i`.

    Args:
        known: what the chain begins with, where that was made before.
    """
    found = [*known] or [root]
    for message in messages[len(found) - 1 :]:
        compacted = message.compacted if isinstance(message, CompactedMessage) else None
        if compacted is None:
            found.append(link(found[-1], message))
        elif compacted.root == root:
            found.append(compacted.link)  # so its places are those of the conversation that it was made of
        else:
            found.append(_hash(_LINK, found[-1] + compacted.root + compacted.link))
    return found


def head(root: bytes) -> bytes:
    """The tag of the end of a head."""
    return _hash(_HEAD, root)


def start(before: bytes, *, variables: Mapping[str, Any] | None) -> bytes:
    """The tag of the place where an answer begins.

    Args:
        before: the element of the chain that stands before the answer.
        variables: what the chat template was told beside the messages. The beginning of an answer lies before the
            place, and may depend on them (`enable_thinking`).
    """
    return _hash(_START, before + _json(variables or {}))


def end(behind: bytes, *, closed: bool) -> bytes:
    """The tag of the place where an answer ended.

    Args:
        behind: the element of the chain that stands behind the answer.
        closed: the history ends with the token that the template writes behind an answer. Without it, as with an
            answer that was cut by max_tokens, it has to be appended first.
    """
    return _hash(_END, behind + bytes([closed]))


def end_of_answer(before: bytes, answer: Message, *, closed: bool) -> bytes:
    """The tag of the end of an answer, as a client will send it back.

    Args:
        before: the element of the chain that stands before it.
    """
    return end(link(before, answer), closed=closed)


def candidates(
    chain: Sequence[bytes], messages: Sequence[Message], *, variables: Mapping[str, Any] | None
) -> list[Candidate]:
    """The places at which a request with these messages may go on, the deepest first, the head always last.

    At most MAX_TAGS.
    """
    deepest = islice(_places(chain, messages, variables), MAX_TAGS - 1)
    return [*deepest, Candidate(head(chain[0]), "head", 0)]


def _places(
    chain: Sequence[bytes], messages: Sequence[Message], variables: Mapping[str, Any] | None
) -> Iterator[Candidate]:
    yield Candidate(start(chain[-1], variables=variables), "start", len(messages))
    for index in reversed(range(len(messages))):
        if messages[index].role == "assistant":
            yield Candidate(end(chain[index + 1], closed=True), "end", index, closed=True)
            yield Candidate(end(chain[index + 1], closed=False), "end", index)
            yield Candidate(start(chain[index], variables=variables), "start", index)


def _hash(kind: bytes, data: bytes) -> bytes:
    """Hashes of two kinds are never equal."""
    return blake2b(data, digest_size=32, person=kind).digest()


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True).encode()
