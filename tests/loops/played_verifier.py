"""A verifier that says what it is told to: the plugin of workers whose answers a test knows beforehand.

It holds K and V as any other does, one number a token, so that lanes are copied, parked, restored and rewound as those
of a model; only the logits do not come from them.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from kakeya_worker.engine.seams.geometry import Integers, LaneGeometry
from kakeya_worker.engine.seams.raw_lane import RawLane
from kakeya_worker.engine.seams.raw_numbers import RawNumbers
from kakeya_worker.engine.seams.row import Row
from kakeya_worker.engine.seams.verifier import LaneContents, Memory, ModelFacts
from kakeya_worker.models import checkpoint
from tests import entry_points

BACKEND: Final = "played"
_SCRIPT = "answers.json"
_CERTAIN = 1e4
"""Logit of the token that is said: no temperature makes another one likely."""
_MAX_POSITIONS = 1 << 20


def install(directory: Path) -> None:
    """Makes it a plugin for processes that have the directory on their path."""
    entry_points.install(directory, "kakeya.verifier", {BACKEND: f"{__name__}:PlayedVerifier"})


def play(model: Path, answers: Sequence[Sequence[int]]) -> None:
    """What the worker of a model is to answer from now on, one after the other, each as its tokens.

    Whatever it was to say before is forgotten. An answer that is to end by itself ends with a token that does so.
    """
    made = model / f"{_SCRIPT}.new"
    made.write_text(json.dumps([list(answer) for answer in answers]))
    os.replace(made, model / _SCRIPT)


class _Script:
    """What is left to be said, as the file says."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None
        self._answers: list[tuple[int, ...]] = []

    def next(self) -> tuple[int, ...]:
        """An answer; nothing where none is left, or none was ever given."""
        try:
            status = self._path.stat()
        except FileNotFoundError:
            return ()
        if self._seen != (seen := (status.st_ino, status.st_mtime_ns)):
            self._seen = seen
            self._answers = [tuple(answer) for answer in json.loads(self._path.read_text())]
        return self._answers.pop(0) if self._answers else ()


@dataclass
class _Playing:
    """An answer in a lane."""

    answer: tuple[int, ...]
    num_said: int = 0

    @property
    def next(self) -> int:
        """Its last token again where it is over."""
        return self.answer[min(self.num_said, len(self.answer) - 1)]


class PlayedVerifier:
    """See `kakeya_worker.engine.seams.verifier.Verifier`.

    An answer begins where logits are asked for behind tokens that it has not said itself.
    """

    def __init__(
        self, model: str, *, weights: str, kv_dtype: str, num_threads: int, cache_directory: Path | None
    ) -> None:
        directory = checkpoint.locate(model)
        vocabulary = Tokenizer.from_file(str(directory / "tokenizer.json")).get_vocab(with_added_tokens=True)
        self._script = _Script(directory / _SCRIPT)
        self._playing: dict[int, _Playing] = {}
        self._lengths: dict[int, int] = {}  # of histories, by lane, as far as they are known
        self.facts = ModelFacts(
            backend=BACKEND,
            weights="float32",
            kv_dtype="float32",
            exact=False,
            fingerprint=BACKEND,
            vocab_size=max(vocabulary.values()) + 1,
            max_positions=_MAX_POSITIONS,
            max_positions_reason="as many as a test asks for",
            kv_bytes_per_token=8,
            tokenizer_digest=checkpoint.digest_tokenizer(directory),
            tokenizer=checkpoint.find_tokenizer(directory),
            model_digest=BACKEND,
        )

    def allocate(self, geometry: LaneGeometry, num_lanes: int) -> None:
        """One head of one number a slot, and one of the last token."""
        shape = (num_lanes, 1, geometry.num_slots, 1)
        self._keys: RawNumbers = np.zeros(shape, np.uint32)
        self._values: RawNumbers = np.zeros(shape, np.uint32)
        self._final_hidden: RawNumbers = np.zeros((num_lanes, 1), np.uint32)

    def forward(self, rows: Sequence[Row]) -> None:
        """Keeps each token and its index; see the seam."""
        for row in rows:
            self._keys[row.lane, 0, row.slots, 0] = row.token_ids
            self._values[row.lane, 0, row.slots, 0] = row.positions
            self._final_hidden[row.lane] = row.token_ids[-1]
            playing = self._playing.get(row.lane)
            follows = self._lengths.get(row.lane) in (None, row.start)
            self._lengths[row.lane] = row.end
            if playing and follows and row.token_ids == (playing.next,):
                playing.num_said += 1
            else:
                self._playing.pop(row.lane, None)

    def logits(self, lanes: Sequence[int]) -> NDArray[np.float32]:
        """The next token of each lane's answer, for certain; [lanes, vocab]."""
        found = np.zeros((len(lanes), self.facts.vocab_size), np.float32)
        for logits, lane in zip(found, lanes, strict=True):
            if lane not in self._playing and (answer := self._script.next()):
                self._playing[lane] = _Playing(answer)
            if lane in self._playing:
                logits[self._playing[lane].next] = _CERTAIN
        return found

    def scored_logits(self, lanes: Sequence[int]) -> NDArray[np.float32]:
        """Nothing that is given is scored here."""
        raise NotImplementedError(f"no logits of what was appended to lanes {lanes}")

    def shorten(self, lane: int, num_tokens: int) -> None:
        """Likewise."""
        raise NotImplementedError(f"no rows of several tokens in lane {lane}")

    def populate_lane(self, lane: int) -> None:
        """It is all there."""

    def copy_lane(self, source: int, target: int, num_slots: int) -> None:
        """A memcpy; see the seam."""
        self._forget(target)
        for held in (self._keys, self._values):
            held[target, :, :num_slots] = held[source, :, :num_slots]
        self._final_hidden[target] = self._final_hidden[source]

    def read_lane(self, lane: int, slots: Integers, memory: Memory | None = None) -> LaneContents:
        """Copies; see the seam."""
        return self._raw(lane).read(slots, memory)

    def write_lane(self, lane: int, slots: Integers, contents: LaneContents) -> None:
        """Copies; see the seam. Raises ValueError."""
        self._forget(lane)
        self._raw(lane).write(slots, contents)

    def poison(self) -> None:
        """What was never written is no token."""
        self._keys[:] = np.iinfo(np.uint32).max

    def _forget(self, lane: int) -> None:
        """It is to hold another history."""
        self._playing.pop(lane, None)
        self._lengths.pop(lane, None)

    def _raw(self, lane: int) -> RawLane:
        return RawLane([self._keys[lane]], [self._values[lane]], self._final_hidden[lane])
