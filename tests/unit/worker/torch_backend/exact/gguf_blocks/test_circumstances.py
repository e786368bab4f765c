"""Models of GGUF's blocks: the same bits under all circumstances, with every kernel, and in the reference."""

from pathlib import Path

import pytest

from kakeya_worker.conformance.tools.circumstances import Circumstances, VerifierConversation, pairwise
from kakeya_worker.conformance.tools.transcript import Transcript, transcript
from kakeya_worker.torch_backend import TorchVerifier
from kakeya_worker.torch_backend.exact.kernel.library import CHOICE_VARIABLE, variants
from tests.unit.worker.torch_backend.exact.gguf_blocks import known_answers
from tests.unit.worker.torch_backend.exact.gguf_blocks.known_answers import MODELS

NAMES = list(MODELS)
KERNELS = [*variants(), "off"]


@pytest.fixture(scope="module", params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def path(name: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return known_answers.write(name, tmp_path_factory.mktemp("blocks"))


def held(path: Path, circumstances: Circumstances, kv_dtype: str = "bfloat16") -> Transcript:
    """What a verifier says."""
    num_threads = circumstances.num_threads
    verifier = TorchVerifier(
        str(path), weights="gguf", kv_dtype=kv_dtype, num_threads=num_threads, cache_directory=None
    )
    return transcript(VerifierConversation(verifier, circumstances), MODELS[path.stem][0])


def test_a_prefill_in_company(name: str, path: Path) -> None:
    circumstances = Circumstances(None, 8, 32, num_threads=1)
    assert held(path, circumstances) == known_answers.read(name, "bfloat16")


@pytest.mark.heavy
@pytest.mark.timeout(300)
def test_the_reference_gives_the_known_answers(name: str) -> None:
    assert known_answers.answer(name, "bfloat16") == known_answers.read(name, "bfloat16")


@pytest.mark.heavy
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kernel", KERNELS)
def test_every_kernel(name: str, path: Path, kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Models and kernels together meet every pair of an append's size, a company and a chunk."""
    monkeypatch.setenv(CHOICE_VARIABLE, kernel)
    some = pairwise(num_threads=2)
    circumstances = some[(NAMES.index(name) * len(KERNELS) + KERNELS.index(kernel)) % len(some)]
    assert held(path, circumstances) == known_answers.read(name, "bfloat16"), circumstances


@pytest.mark.heavy
@pytest.mark.timeout(300)
def test_kv_of_float32(name: str, path: Path) -> None:
    assert held(path, Circumstances(64, 1, 16, num_threads=1), "float32") == known_answers.read(name, "float32")
