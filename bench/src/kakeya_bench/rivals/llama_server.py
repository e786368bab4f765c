"""A rival that keeps the last prompt: llama.cpp's server, compiled on first use from the source in its Python package.

docs/benches.md says what it does with a conversation that outgrows its context, seen with the version in llama_cpp.txt.
Hence --cache-reuse, --cache-ram 0, no --context-shift, one slot, and a client that keeps its first tokens and drops the
next ones before a turn would not fit. With --cache-reuse a turn that drops takes hardly longer than one that does not;
but each time the keys in f16 are rotated, and rounded, once more, so a client drops many tokens at a time.

An answer's text tells its ids; with "logprobs": 1 in the request each event tells them as numbers, too.

Flash attention is off. On two cores, the first token of an answer to 100 new ones after 23,000 took 40 % less time
without it, each further token 15 % less, and a prefill of all 23,000 as long. Without it the scores of a batch take
memory, hence the small batch: the server held 563 MiB with one of 128 tokens and 1,004 MiB with one of 512, the
default, which was no faster. With flash attention it held 428 MiB.
"""

import shutil
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kakeya_bench.rivals.command import BENCH, CommandFailed, RivalFailed, run_logged, say
from kakeya_bench.rivals.llama_cpp import REQUIREMENTS, TOOLS
from kakeya_bench.rivals.server import HOST, Command, Rival, running

DIRECTORY = BENCH / "llama-server"
PROGRAM = DIRECTORY / "llama-server"
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
        RivalFailed: it could not be built.
    """
    wanted = "\n".join([REQUIREMENTS.read_text(), *_OPTIONS])
    if _BUILT.is_file() and _BUILT.read_text() == wanted:
        return
    say(f"building llama.cpp's server in {DIRECTORY} (several minutes, once; log: {_LOG.name} there)")
    shutil.rmtree(DIRECTORY, ignore_errors=True)
    DIRECTORY.mkdir(parents=True)
    try:
        TOOLS.prepare()
        _build(_source())
    except CommandFailed as error:
        raise RivalFailed(f"llama-server did not build (it needs a C and a C++ compiler): {error}") from error
    _BUILT.write_text(wanted)


def _source() -> Path:
    """llama.cpp's source tree, out of the package of its binding."""
    download = (sys.executable, "-m", "pip", "download", "--no-deps", "-r", REQUIREMENTS, "-d", DIRECTORY)
    run_logged(download, _LOG)
    package = next(DIRECTORY.glob("*.tar.gz"))
    with tarfile.open(package) as archive:
        archive.extractall(DIRECTORY / "source", filter="data")
    package.unlink()
    return next(DIRECTORY.glob("source/*/vendor/llama.cpp"))


def _build(source: Path) -> None:
    build, cmake, ninja = DIRECTORY / "build", TOOLS.programs / "cmake", TOOLS.programs / "ninja"
    run_logged([cmake, "-S", source, "-B", build, "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}", *_OPTIONS], _LOG)
    run_logged([ninja, "-C", build, "llama-server"], _LOG)
    shutil.move(build / "bin" / "llama-server", PROGRAM)
    shutil.rmtree(build)
    shutil.rmtree(DIRECTORY / "source")


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
