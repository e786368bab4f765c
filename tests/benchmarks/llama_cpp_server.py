"""A rival that keeps the last prompt: llama.cpp's server, compiled on first use from the source in its Python package.

What it does with a conversation (seen with the version in llama_cpp_requirements.txt, and read in server-context.cpp):

- It takes a prompt of token ids as it is. The file needs a vocabulary: without one the server starts, and aborts at the
  first token of an answer (see llama_cpp_gguf.py). An id outside the vocabulary, or an empty prompt, gets status 400.
- The tokens that a prompt has in common with the one before, from the first on, are not computed again. Of a prompt
  that goes on with the conversation it computes the new tokens and the last one of the answer.
- A prompt that is not shorter than the context gets status 400 instead of a stream, with --context-shift too: {"error":
  {"code": 400, "type": "exceed_context_size_error", "n_prompt_tokens": 4096, "n_ctx": 4096, "message": "request (4096
  tokens) exceeds the available context size (4096 tokens), try increasing it"}}. A context larger than the model's
  positions is cut down to those.
- An answer that reaches the end of the context ends there, with finish_reason "length". With --context-shift it goes
  on, and the server forgets half of what follows the first n_keep tokens (a field of the request; 0 by default). It
  does not say so, and the client must leave out the same tokens from its next prompt.
- So the client drops the oldest part of its history before the context is full. By default the server then finds only
  the first tokens again that the client kept, and computes all that follows the gap anew. With --cache-reuse N it finds
  the rest too, wherever at least N tokens on end are the same: it rotates their keys to the new positions, and computes
  only what is new. That holds as well where the very first tokens were dropped. The keys and values that it reuses were
  computed while the dropped tokens were in sight, as in Kakeya's window, so it answers otherwise than after a full
  prefill.
- Where a prompt and the one before have fewer first tokens in common than half of that one, or a tenth of the prompt,
  the KV of that one is first copied into a cache in memory (--cache-ram, 8 GiB by default), where one conversation
  never needs it again.

Hence, for a conversation that outgrows its context: --cache-reuse, --cache-ram 0, no --context-shift, one slot, and a
client that keeps its first tokens and drops the next ones before a turn would not fit. With --cache-reuse a turn that
drops takes hardly longer than one that does not; but each time the keys in f16 are rotated, and rounded, once more, so
a client drops many tokens at a time.

An answer's text tells its ids; with "logprobs": 1 in the request each event tells them as numbers, too.

Flash attention is off. On two cores, the first token of an answer to 100 new ones after 23,000 took 40 % less time
without it, each further token 15 % less, and a prefill of all 23,000 as long. Without it the scores of a batch take
memory, hence the small batch: the server held 563 MiB with one of 128 tokens and 1,004 MiB with one of 512, the
default, which was no faster. With flash attention it held 428 MiB.
"""

import shutil
import sys
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.benchmarks import llama_cpp_environment as llama_cpp
from tests.benchmarks.llama_cpp_environment import LlamaCppFailed
from tests.benchmarks.logged_command import CommandFailed, run_logged, say
from tests.benchmarks.python_environment import BENCH, PythonEnvironment
from tests.benchmarks.rival_process import HOST, Command, Rival, running

DIRECTORY = BENCH / "llama-server"
PROGRAM = DIRECTORY / "llama-server"
BUILD_TOOLS = PythonEnvironment(BENCH / "build-tools", Path(__file__).with_name("build_tools_requirements.txt"))

_BUILT = DIRECTORY / "built.txt"  # written last: a build that broke off is begun again
_LOG = DIRECTORY / "build.log"
_OPTIONS = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DBUILD_SHARED_LIBS=OFF",  # one file, that outlives what it was built from
    "-DGGML_NATIVE=ON",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_UI=OFF",
    "-DLLAMA_USE_PREBUILT_UI=OFF",
    "-DLLAMA_OPENSSL=OFF",
)
_NUM_REUSED_TOKENS = 256  # on end, at least: far fewer than a conversation keeps, far more than match by chance
_NUM_BATCH_TOKENS = 128


def prepare() -> None:
    """Builds the server where it is missing or of another version: minutes, with progress on stderr.

    Raises:
        LlamaCppFailed: it could not be built.
    """
    wanted = "\n".join([llama_cpp.REQUIREMENTS.read_text(), *_OPTIONS])
    if _BUILT.is_file() and _BUILT.read_text() == wanted:
        return
    where = DIRECTORY.relative_to(BENCH.parent)
    say(f"building llama.cpp's server into {where} (several minutes, once; log: {_LOG.name} there)")
    shutil.rmtree(DIRECTORY, ignore_errors=True)
    DIRECTORY.mkdir(parents=True)
    try:
        _build(_unpack(_download()))
    except CommandFailed as error:
        raise LlamaCppFailed(f"llama-server did not build (it needs a C and a C++ compiler): {error}") from error
    _BUILT.write_text(wanted)


@contextmanager
def llama_server(model: Path, *, num_context_tokens: int, num_threads: int = 2) -> Iterator[Rival]:
    """A server of one conversation at a time, ready; `prepare` built it.

    Args:
        model: a GGUF file with a vocabulary.
        num_context_tokens: that prompt and answer may have; their KV is allocated at the start, in f16.

    Raises:
        RivalFailed: it did not start, or ended by itself.
    """
    with running(lambda port: _command(port, model, num_context_tokens, num_threads)) as rival:
        yield rival


def _command(port: int, model: Path, num_context_tokens: int, num_threads: int) -> Command:
    return [
        PROGRAM,
        *("--model", model, "--host", HOST, "--port", str(port)),
        *("--parallel", "1", "--ctx-size", str(num_context_tokens), "--threads", str(num_threads)),
        *("--cache-type-k", "f16", "--cache-type-v", "f16"),
        *("--cache-prompt", "--cache-reuse", str(_NUM_REUSED_TOKENS), "--cache-ram", "0", "--no-context-shift"),
        *("--flash-attn", "off", "--ubatch-size", str(_NUM_BATCH_TOKENS)),
        *("--fit", "off"),  # what is asked for, or an error
    ]


def _download() -> Path:
    """The source package."""
    run_logged(
        [
            *(sys.executable, "-m", "pip", "download", "--no-deps"),
            *("-r", llama_cpp.REQUIREMENTS, "-d", DIRECTORY),
        ],
        _LOG,
    )
    return next(DIRECTORY.glob("*.tar.gz"))


def _unpack(package: Path) -> Path:
    """llama.cpp's source tree."""
    with tarfile.open(package) as archive:
        archive.extractall(DIRECTORY / "source", filter="data")
    package.unlink()
    return next(DIRECTORY.glob("source/*/vendor/llama.cpp"))


def _build(source: Path) -> None:
    cmake, ninja = _build_tools()
    build = DIRECTORY / "build"
    configure = [cmake, "-S", source, "-B", build, "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}", *_OPTIONS]
    run_logged(configure, _LOG)
    run_logged([ninja, "-C", build, "llama-server"], _LOG)
    shutil.move(build / "bin" / "llama-server", PROGRAM)
    shutil.rmtree(build)
    shutil.rmtree(DIRECTORY / "source")


def _build_tools() -> Sequence[str | Path]:
    """cmake and ninja: those on PATH, else those that pip brings."""
    on_path = [shutil.which(name) for name in ("cmake", "ninja")]
    if all(on_path):
        return [program for program in on_path if program]
    BUILD_TOOLS.prepare()
    return [BUILD_TOOLS.programs / name for name in ("cmake", "ninja")]
