"""One long conversation on Kakeya and on its rivals, on this machine, with `kakeya bench compare`.

All serve one model of random weights, which rivals/checkpoint.py makes, with two threads, one at a time:

    kakeya           a router and a worker: int8, 4 sinks and a window of 1,020 tokens; over gRPC
    http shim        the same worker behind `kakeya http`, which opens a session for each request: at the marks only
    transformers     keeps nothing between requests, so it prefills all of each prompt: at the marks only
    llama.cpp        Q8_0 and its prompt cache, with a context that has room for the whole conversation
    llama.cpp, full  the same with a context of --context tokens: its client drops half of them when it is full

See llama_server.py for how that is run best. Exits as the bench does: with 1 unless transformers takes at least 20
times as long as Kakeya for the first token of the last turn.
"""

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self

from pydantic import model_validator
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from kakeya_bench.compare import command
from kakeya_bench.rivals import checkpoint as checkpoints
from kakeya_bench.rivals import llama_server as llama
from kakeya_bench.rivals.checkpoint import GGUF, SMALL
from kakeya_bench.rivals.command import RivalFailed, say
from kakeya_bench.rivals.llama_server import llama_server
from kakeya_bench.rivals.transformers_server import transformers_server
from kakeya_shared.settings.service import setting
from tests.benchmarks.bench import BenchSettings
from tests.integration.processes import SINK, Runtime, runtime

MODEL = "random-qwen3"
WINDOW = 1020
NUM_THREADS = 2
NUM_LANES = 2  # of the conversation, and of the shim's requests
MAX_TOKENS = 16
TIMEOUT_SECONDS = 1800.0  # the shim prefills the whole conversation
LEAST_FACTOR = 20.0
FAILED = 2
INTERRUPTED = 128  # and the signal's number

SHIM, TRANSFORMERS, LLAMA, FULL_LLAMA = "http shim", "transformers", "llama.cpp", "llama.cpp full"
_FIELDS = {
    SHIM: {"ignore_eos": None, "return_token_ids": None},  # not OpenAI's; the model has no end of its own
    TRANSFORMERS: {"model": MODEL},
    # The only way to the ids of its answer; these probabilities are at hand when a token has been chosen.
    LLAMA: {"logprobs": 1, "post_sampling_probs": True},
    FULL_LLAMA: {"logprobs": 1, "post_sampling_probs": True},
}


class RivalsSettings(BenchSettings):
    turns: int = setting(200, "turns of the conversation", metavar="N", ge=1)
    new_tokens: int = setting(100, "new tokens in each turn", metavar="N", ge=1)
    context: int = setting(2048, f"context of {FULL_LLAMA}", unit="tokens", metavar="N", ge=1)
    at_least: float = setting(LEAST_FACTOR, "the claim about transformers", metavar="FACTOR", gt=0)
    checkpoint: Path | None = setting(None, "where the model is kept", reason="made for this run", metavar="DIR")
    output: Path = setting(Path("build/compare"), "directory of the report", metavar="DIR")

    @property
    def num_tokens(self) -> int:
        """Of the whole conversation."""
        return self.turns * (self.new_tokens + MAX_TOKENS)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.num_tokens > (most := SMALL["max_position_embeddings"]):
            raise ValueError(f"the rivals' model has {most:,} positions, fewer than these turns take")
        return self


def played(asked: RivalsSettings, directory: Path) -> int:
    """Starts everybody, plays, and returns the bench's exit status. Raises RivalFailed."""
    checkpoint = checkpoints.kept(asked.checkpoint or directory / "checkpoint", SMALL)
    status = FAILED
    try:
        with ExitStack() as stack:
            say("starting the runtime and its HTTP shim")
            kakeya = stack.enter_context(served(checkpoint, directory))
            rivals = started(stack, asked, kakeya, checkpoint)
            status = command.main(flags(asked, kakeya.address, rivals, checkpoint))
    except RivalFailed:
        if status < INTERRUPTED:  # else a Ctrl-C in the terminal was for the rivals, too
            raise
    return status


def started(stack: ExitStack, asked: RivalsSettings, kakeya: Runtime, checkpoint: Path) -> list[str]:
    """The rivals, as the bench's flag takes them."""
    shim = kakeya.shims[0]
    rivals = [f"{SHIM}=http://{shim.address}/v1,every=mark,kv={SINK + WINDOW},pid={shim.process.pid}"]
    say("starting transformers")
    made = stack.enter_context(transformers_server(checkpoint, num_threads=NUM_THREADS))
    rivals.append(f"{TRANSFORMERS}={made.url}/v1,every=mark,pid={made.pid}")
    for name, context, option in (
        (LLAMA, rounded_up(asked.num_tokens), ""),
        (FULL_LLAMA, asked.context, f",context={asked.context}"),
    ):
        say(f"starting {name} with a context of {context:,} tokens")
        made = stack.enter_context(llama_server(checkpoint / GGUF, num_context_tokens=context, num_threads=NUM_THREADS))
        rivals.append(f"{name}={made.url}/v1,pid={made.pid}{option}")
    return rivals


def flags(asked: RivalsSettings, address: str, rivals: Sequence[str], config: Path) -> list[str]:
    """Of the bench."""
    return [
        *("--address", address, "--model", MODEL, "--config", str(config), "--output", str(asked.output)),
        *("--turns", str(asked.turns), "--new-tokens", str(asked.new_tokens), "--max-tokens", str(MAX_TOKENS)),
        *("--timeout-s", str(TIMEOUT_SECONDS)),
        *(f"--rival={rival}" for rival in rivals),
        *(f"--fields={name}={json.dumps(fields)}" for name, fields in _FIELDS.items()),
        f"--at-least={TRANSFORMERS}={asked.at_least}",
    ]


def rounded_up(num_tokens: int) -> int:
    """llama.cpp takes contexts in steps of 256."""
    return -(-num_tokens // 256) * 256


@contextmanager
def served(checkpoint: Path, directory: Path) -> Iterator[Runtime]:
    """A router, a worker and a shim."""
    with runtime(checkpoint, directory, num_workers=0) as made:
        made.start_worker(
            *("--served-model-name", MODEL, "--weights", "int8", "--window", str(WINDOW)),
            *("--threads", str(NUM_THREADS), "--cache-dir", str(directory / "cache")),
            lanes=NUM_LANES,
        )
        made.wait_for_workers(1)
        tokenizer = saved_tokenizer(directory / "tokenizer")
        made.start_http("--live-sessions", "on", "--tokenizer", f"{MODEL}={tokenizer}")
        yield made


def saved_tokenizer(directory: Path) -> Path:
    """One word for each id, so that each token of an answer is a text at once."""
    words = {f"<{token_id}>": token_id for token_id in range(SMALL["vocab_size"])}
    PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="<0>"))).save_pretrained(
        directory
    )
    return directory


def main(argv: list[str]) -> int:
    asked = RivalsSettings.parse(argv)
    try:
        llama.prepare()
        with tempfile.TemporaryDirectory(prefix="kakeya-compare-") as directory:
            status = played(asked, Path(directory))
    except RivalFailed as error:
        print(f"cannot compare: {error}", file=sys.stderr)
        return FAILED
    if asked.json_file:
        shutil.copy(asked.output / "compare.json", asked.json_file)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
