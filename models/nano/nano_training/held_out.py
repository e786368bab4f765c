"""Held-out conversations played on Kakeya's own engine: the user's side as drawn, the answers as the model gives them.

    python -m nano_training.held_out [--model DIR] [--weights int8] [--conversations N] [--json FILE]

Exits with 1 when a share is below the floor that the model card promises, or cannot be told from so few answers.
"""

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tokenizers import Tokenizer

import kakeya_nano
from kakeya_bench.quality.material.script import Script, answer
from kakeya_bench.quality.measure.stage import Stage
from kakeya_bench.statistics.share import NONE, Share
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.retention import SessionOptions, sink_window
from kakeya_worker.torch_backend import TorchVerifier
from nano_training.agreement import bucket_of
from nano_training.corpus import Encoder, seeded
from nano_training.dialogues import tools
from nano_training.dialogues.conversation import Conversation
from nano_training.dialogues.message import Exchange, written
from nano_training.shape import MAX_POSITIONS
from nano_training.tokenizer import END_OF_TURN, end_of_turn
from nano_training.training import RECIPE

FLOORS: Final = {
    "recall": 0.95,
    "recall to   64": 0.95,
    "recall to  128": 0.95,
    "recall to  256": 0.95,
    "recall to  512": 0.95,
    "recall to 1024": 0.95,
    "arithmetic": 0.90,
    "ends its turn": 0.99,
    "valid JSON": 0.95,
    "valid tool call": 0.95,
}
"""What the model is to reach, the recall at every distance for itself."""
MIN_ANSWERS: Final = 20  # from which a share can be told
MAX_ANSWER_TOKENS: Final = 200
_SINK: Final = 4
_NUM_LANES: Final = 16
_WITH_TOOLS: Final = 4  # every so many conversations have tools whatever chance says
_OPEN_KINDS: Final = ("small talk", "tell", "name some")  # several answers are right
_TOOL_CALL: Final = ("<tool_call>", "</tool_call>")


@dataclass(frozen=True)
class Answer:
    """What the model said where a conversation has an answer.

    Attributes:
        kind: of the exchange.
        expected: the drawn answer.
        said: the model's, without its end.
        ended: it ended its turn by itself.
        distance: tokens since the fact that it recalls was last told or asked for; None where it recalls none.
    """

    kind: str
    expected: str
    said: str
    ended: bool
    distance: int | None = None

    def marks(self) -> Iterator[tuple[str, bool]]:
        """What it is judged by, each with the outcome."""
        is_right = self.ended and self.said == self.expected
        yield "ends its turn", self.ended
        if self.kind not in _OPEN_KINDS:
            yield self.kind, is_right
        if self.distance is not None:
            yield f"recall to {bucket_of(self.distance):4}", is_right
        if self.kind == "json":
            yield "valid JSON", self.ended and _is_json_of(type(json.loads(self.expected)), self.said)
        if self.expected.startswith(_TOOL_CALL[0]):
            yield "valid tool call", self.ended and _is_tool_call(self.said)


def conversation(exchanges: Iterator[Exchange], encode: Encoder, tokenizer: Tokenizer) -> Script[list[Answer]]:
    """Plays a conversation until the next answer might not fit the model's positions."""
    end = end_of_turn(tokenizer)
    answers: list[Answer] = []
    pending: list[int] = []
    last_seen: dict[str, int] = {}
    length = 0  # of the history, without what is pending
    for exchange in exchanges:
        for piece in written(exchange.messages):
            if not piece.is_answer:
                pending += encode(piece.text)
                continue
            if length + len(pending) + 2 * len(encode(piece.text)) > MAX_POSITIONS - _SINK:
                return answers
            most = min(MAX_ANSWER_TOKENS, MAX_POSITIONS - _SINK - length - len(pending))
            length += len(pending)
            distance = length - last_seen[exchange.asked] if exchange.asked else None
            said = yield from answer(tuple(pending), (end,), most=most)
            ended = said[-1] == end
            text = tokenizer.decode(said[:-1] if ended else said, skip_special_tokens=False)
            answers.append(Answer(exchange.kind, piece.text.removesuffix(END_OF_TURN), text, ended, distance))
            # The last token of an answer has not been fed.
            length += len(said) - 1
            pending = [said[-1]] if ended else [said[-1], end]
        here = length + len(pending)
        last_seen |= dict.fromkeys([*exchange.told, *([exchange.asked] if exchange.asked else [])], here)
    return answers


def play(directory: Path, *, weights: str, num_threads: int, seed: int, num_conversations: int) -> list[Answer]:
    """All answers of so many held-out conversations."""
    tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    encode = Encoder(tokenizer)
    verifier = TorchVerifier(
        str(directory), weights=weights, kv_dtype="auto", num_threads=num_threads, cache_directory=None
    )
    stage = Stage(verifier, LaneGeometry(_SINK, MAX_POSITIONS - _SINK, chunk=32), _NUM_LANES)
    retention = sink_window(SessionOptions(), stage.geometry)
    scripts = (
        (conversation(_held_out(seed, index).exchanges(), encode, tokenizer), retention)
        for index in range(num_conversations)
    )
    return [answer for answers in stage.play(scripts) for answer in answers]


def _held_out(seed: int, index: int) -> Conversation:
    random = seeded(seed, "held out", index)
    return Conversation(random, random.sample(tools.TOOLS, 2) if index % _WITH_TOOLS == 0 else None)


def shares(answers: list[Answer]) -> dict[str, Share]:
    """By mark."""
    by_mark: dict[str, list[bool]] = defaultdict(list)
    for each in answers:
        for mark, outcome in each.marks():
            by_mark[mark].append(outcome)
    return {mark: Share.of(outcomes) for mark, outcomes in sorted(by_mark.items())}


def is_kept(share: Share, floor: float) -> bool:
    """Whether the share reaches the floor, and of enough answers."""
    return share.num >= MIN_ANSWERS and (share.value or 0.0) >= floor


def _is_json_of(kind: type, text: str) -> bool:
    try:
        return type(json.loads(text)) is kind
    except ValueError:
        return False


def _is_tool_call(text: str) -> bool:
    """Whether it is one call and nothing else, with a name and arguments."""
    start, end = _TOOL_CALL
    inner = text.removeprefix(f"{start}\n").removesuffix(f"\n{end}")
    if text != f"{start}\n{inner}\n{end}" or not _is_json_of(dict, inner):
        return False
    call: dict[str, Any] = json.loads(inner)
    return isinstance(call.get("name"), str) and isinstance(call.get("arguments"), dict)


def main() -> int:
    arguments = _parser().parse_args()
    answers = play(
        arguments.model,
        weights=arguments.weights,
        num_threads=arguments.threads,
        seed=RECIPE.seed,
        num_conversations=arguments.conversations,
    )
    found = shares(answers)
    for mark, share in found.items():
        print(f"{mark:16} {share}")
    _show_wrong(answers, arguments.wrong)
    if arguments.json:
        figures = {mark: {"right": share.hits, "of": share.num} for mark, share in found.items()}
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")
    broken = [mark for mark, floor in FLOORS.items() if not is_kept(found.get(mark, NONE), floor)]
    for mark in broken:
        print(f"{mark}: below {FLOORS[mark]:.0%}, or of fewer than {MIN_ANSWERS} answers", file=sys.stderr)
    return 1 if broken else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m nano_training.held_out", description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, default=kakeya_nano.directory(), help="(default: the one that ships)")
    parser.add_argument("--weights", default="int8", help="int8 or float32 (default: int8)")
    parser.add_argument("--threads", type=int, default=2, help="for the arithmetic (default: 2)")
    parser.add_argument("--conversations", type=int, default=100, metavar="N", help="(default: 100)")
    parser.add_argument("--wrong", type=int, default=0, metavar="N", help="show so many wrong answers of each kind")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the shares there")
    return parser


def _show_wrong(answers: list[Answer], num: int) -> None:
    shown: dict[str, int] = defaultdict(int)
    for each in answers:
        for mark, outcome in each.marks():
            if not outcome and shown[mark] < num:
                shown[mark] += 1
                print(f"{mark}: {each.said!r} instead of {each.expected!r}")


if __name__ == "__main__":
    sys.exit(main())
