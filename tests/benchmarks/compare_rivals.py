"""One long conversation on Kakeya and on its rivals, on this machine, with `kakeya bench compare`.

All serve one model of random weights, which rivals/checkpoint.py makes, with two threads, one at a time:

    kakeya           a router and a worker: int8, 4 sinks and a window of 1,020 tokens; over gRPC
    http shim        the same router and worker behind `kakeya http`: OpenAI's client, which sends all messages each
                     turn and keeps the answers as it gets them, under a chat template of Qwen3's kind
    http responses   the same shim by its responses: OpenAI's client, which sends the new message behind the response
                     before, with `previous_response_id`
    transformers     keeps nothing between requests, so it prefills all of each prompt: at the marks only
    llama.cpp        Q8_0 and its prompt cache, with a context that has room for the whole conversation
    llama.cpp, full  the same with a context of --context tokens: its client drops half of them when it is full

See llama_server.py for how that is run best. Exits as the bench does: with 1 unless transformers takes at least 20
times as long as Kakeya for the first token of the last turn; the first token over HTTP takes at most 1.1 times as long
as over gRPC, and 5 ms, at the end, of chats and of responses; each turn over HTTP goes on in its session and appends
its new tokens only; and a request of 617 messages takes the shim at most 15 ms of processor time.
"""

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

from pydantic import model_validator

from kakeya_bench.compare import command
from kakeya_bench.rivals import checkpoint as checkpoints
from kakeya_bench.rivals import llama_server as llama
from kakeya_bench.rivals.checkpoint import GGUF, SMALL
from kakeya_bench.rivals.command import RivalFailed, say
from kakeya_bench.rivals.llama_server import llama_server
from kakeya_bench.rivals.transformers_server import transformers_server
from kakeya_shared.settings.service import Names, setting
from tests import word_tokenizer
from tests.benchmarks.bench import BenchSettings
from tests.integration.processes import SINK, Runtime, runtime

MODEL = "random-qwen3"
WINDOW = 1020
NUM_THREADS = 2
NUM_LANES = 6  # of the three conversations, of what HTTP has warmed up with, and of its long chat
MAX_TOKENS = 16
TIMEOUT_SECONDS = 1800.0  # transformers prefills the whole conversation
LEAST_FACTOR = 20.0
FIRST_TOKEN = "1.1+5"
"""What HTTP may take for it: so many times gRPC's, and so many milliseconds."""
LONG_CHAT, LONG_CHAT_CPU_MS = 617, 15
"""Messages of the longest conversation that was recorded of an agent; what one more turn may cost the shim."""
FAILED = 2
INTERRUPTED = 128  # and the signal's number

RIVALS = "http shim", "http responses", "transformers", "llama.cpp", "llama.cpp full"
SHIM, RESPONSES, TRANSFORMERS, LLAMA, FULL_LLAMA = RIVALS
_WORDS = {"logit_bias": word_tokenizer.endless(SMALL["vocab_size"])}
_FIELDS: dict[str, dict[str, Any]] = {
    SHIM: _WORDS,
    RESPONSES: _WORDS,
    TRANSFORMERS: {"model": MODEL},
    # The only way to the ids of its answer; these probabilities are at hand when a token has been chosen.
    LLAMA: {"logprobs": 1, "post_sampling_probs": True},
    FULL_LLAMA: {"logprobs": 1, "post_sampling_probs": True},
}


class RivalsSettings(BenchSettings):
    turns: int = setting(200, "turns of the conversation", metavar="N", ge=1)
    new_tokens: int = setting(100, "new tokens in each turn", metavar="N", ge=1)
    context: int = setting(2048, f"context of {FULL_LLAMA}", unit="tokens", metavar="N", ge=1)
    rivals: Names = setting(
        RIVALS, "who plays beside the runtime", metavar="NAME,...", reason="all of them: what docs/flat.md tells"
    )
    at_least: float = setting(LEAST_FACTOR, "the claim about transformers", metavar="FACTOR", gt=0)
    checkpoint: Path | None = setting(None, "where the model is kept", reason="made for this run", metavar="DIR")
    output: Path = setting(Path("build/compare"), "directory of the report", metavar="DIR")

    @property
    def num_tokens(self) -> int:
        """Of the whole conversation."""
        return self.turns * (self.new_tokens + MAX_TOKENS)

    @property
    def plays_llama(self) -> bool:
        """Which is built first."""
        return not {LLAMA, FULL_LLAMA}.isdisjoint(self.rivals)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.num_tokens > (most := SMALL["max_position_embeddings"]):
            raise ValueError(f"the rivals' model has {most:,} positions, fewer than these turns take")
        if unknown := [name for name in self.rivals if name not in RIVALS]:
            raise ValueError(f"--rivals: there is no {unknown[0]!r}, but {', '.join(RIVALS)}")
        return self


def played(asked: RivalsSettings, directory: Path) -> int:
    """Starts everybody, plays, and returns the bench's exit status. Raises RivalFailed."""
    checkpoint = model(asked, directory / "checkpoint")
    status = FAILED
    try:
        with ExitStack() as stack:
            say("starting the runtime and its HTTP shim")
            tokenizer = word_tokenizer.save(directory / "tokenizer", SMALL["vocab_size"])
            kakeya = stack.enter_context(served(checkpoint, directory, tokenizer))
            rivals = started(stack, asked, kakeya, checkpoint, tokenizer)
            status = command.main(flags(asked, kakeya.address, rivals, checkpoint))
    except RivalFailed:
        if status < INTERRUPTED:  # else a Ctrl-C in the terminal was for the rivals, too
            raise
    return status


def model(asked: RivalsSettings, directory: Path) -> Path:
    """The checkpoint, with what llama.cpp needs of it where that plays. Raises RivalFailed."""
    if asked.checkpoint or asked.plays_llama:
        return checkpoints.kept(asked.checkpoint or directory, SMALL)
    return checkpoints.save_random_qwen3(directory, **SMALL)


def started(stack: ExitStack, asked: RivalsSettings, kakeya: Runtime, checkpoint: Path, tokenizer: Path) -> list[str]:
    """The rivals, as the bench's flag takes them."""
    rivals = []
    for name, about in ((SHIM, f"api=chat,messages={LONG_CHAT}"), (RESPONSES, "api=responses")):
        if name in asked.rivals:
            shim = kakeya.shims[0]
            about += f",model={MODEL},tokenizer={tokenizer},kv={SINK + WINDOW},pid={shim.process.pid}"
            rivals.append(f"{name}=http://{shim.address}/v1,{about}")
    if TRANSFORMERS in asked.rivals:
        say("starting transformers")
        made = stack.enter_context(transformers_server(checkpoint, num_threads=NUM_THREADS))
        rivals.append(f"{TRANSFORMERS}={made.url}/v1,every=mark,pid={made.pid}")
    for name, context, option in (
        (LLAMA, rounded_up(asked.num_tokens), ""),
        (FULL_LLAMA, asked.context, f",context={asked.context}"),
    ):
        if name in asked.rivals:
            say(f"starting {name} with a context of {context:,} tokens")
            server = llama_server(checkpoint / GGUF, num_context_tokens=context, num_threads=NUM_THREADS)
            made = stack.enter_context(server)
            rivals.append(f"{name}={made.url}/v1,pid={made.pid}{option}")
    return rivals


def flags(asked: RivalsSettings, address: str, rivals: Sequence[str], config: Path) -> list[str]:
    """Of the bench."""
    claims = {
        SHIM: [f"--at-most={SHIM}={FIRST_TOKEN}", f"--goes-on={SHIM}", f"--cpu-at-most={SHIM}={LONG_CHAT_CPU_MS}"],
        RESPONSES: [f"--at-most={RESPONSES}={FIRST_TOKEN}", f"--goes-on={RESPONSES}"],
        TRANSFORMERS: [f"--at-least={TRANSFORMERS}={asked.at_least}"],
    }
    return [
        *("--address", address, "--model", MODEL, "--config", str(config), "--output", str(asked.output)),
        *("--turns", str(asked.turns), "--new-tokens", str(asked.new_tokens), "--max-tokens", str(MAX_TOKENS)),
        *("--timeout-s", str(TIMEOUT_SECONDS)),
        *(f"--rival={rival}" for rival in rivals),
        *(f"--fields={name}={json.dumps(fields)}" for name, fields in _FIELDS.items() if name in asked.rivals),
        *(flag for name in asked.rivals for flag in claims.get(name, ())),
    ]


def rounded_up(num_tokens: int) -> int:
    """llama.cpp takes contexts in steps of 256."""
    return -(-num_tokens // 256) * 256


@contextmanager
def served(checkpoint: Path, directory: Path, tokenizer: Path) -> Iterator[Runtime]:
    """A router, a worker and a shim."""
    with runtime(checkpoint, directory, num_workers=0) as made:
        made.start_worker(
            *("--served-model-name", MODEL, "--weights", "int8", "--window", str(WINDOW)),
            *("--threads", str(NUM_THREADS), "--cache-dir", str(directory / "cache")),
            lanes=NUM_LANES,
        )
        made.wait_for_workers(1)
        made.start_http("--live-sessions", "on", "--tokenizer", f"{MODEL}={tokenizer}")
        yield made


def main(argv: list[str]) -> int:
    asked = RivalsSettings.parse(argv)
    try:
        if asked.plays_llama:
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
