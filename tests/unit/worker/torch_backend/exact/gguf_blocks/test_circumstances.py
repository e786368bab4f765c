"""Models of GGUF's blocks: the same bits under all circumstances, with every kernel, and in the reference."""

from io import BytesIO
from pathlib import Path

import pytest

from kakeya_worker.conformance.tools.circumstances import Circumstances, VerifierConversation, pairwise
from kakeya_worker.conformance.tools.driving import open_session
from kakeya_worker.conformance.tools.transcript import Transcript, transcript
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.snapshots import snapshot
from kakeya_worker.snapshots import snapshot_file
from kakeya_worker.torch_backend import TorchVerifier
from kakeya_worker.torch_backend.exact.kernel.library import CHOICE_VARIABLE, variants
from tests.unit.worker.torch_backend.exact.gguf_blocks import known_answers
from tests.unit.worker.torch_backend.exact.gguf_blocks.known_answers import MODELS

NAMES = list(MODELS)
KERNELS = [*variants(), "off"]
GEOMETRY = LaneGeometry(sink=4, window=40, chunk=32)


@pytest.fixture(scope="module", params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def path(name: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return known_answers.write(name, tmp_path_factory.mktemp("blocks"))


def held(path: Path, circumstances: Circumstances, kv_dtype: str = "bfloat16") -> Transcript:
    """What a verifier says."""
    verifier = load(path, kv_dtype, circumstances.num_threads)
    return transcript(VerifierConversation(verifier, circumstances), MODELS[path.stem][0])


def load(path: Path, kv_dtype: str = "bfloat16", num_threads: int = 1) -> TorchVerifier:
    return TorchVerifier(str(path), weights="gguf", kv_dtype=kv_dtype, num_threads=num_threads, cache_directory=None)


def test_a_prefill_in_company(name: str, path: Path) -> None:
    circumstances = Circumstances(None, 8, 32, num_threads=1)
    assert held(path, circumstances) == known_answers.read(name, "bfloat16")


def test_a_fork_and_a_lane_restored_elsewhere(name: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Elsewhere is a worker without the kernel, and with chunks of its own."""
    variant, here = MODELS[name][0], load(path)
    monkeypatch.setenv(CHOICE_VARIABLE, "off")
    elsewhere, other = load(path), LaneGeometry(sink=4, window=40, chunk=16)
    for verifier, geometry in ((here, GEOMETRY), (elsewhere, other)):
        verifier.allocate(geometry, 2)
        verifier.poison()
    assert elsewhere.facts.fingerprint == here.facts.fingerprint
    source = open_session(here, GEOMETRY)
    source.append(variant.history(100))
    taken = snapshot_file.encode(snapshot.take(source.lane, here))
    fork, restored = source.fork(1), open_session(elsewhere, other, 1)
    snapshot.restore([snapshot_file.opened(BytesIO(taken))], restored.lane, elsewhere)
    expected = [source.logits().tobytes(), *(source.append(variant.history(n, n)).tobytes() for n in (37, 1))]
    for session in (fork, restored):
        found = [session.logits().tobytes(), *(session.append(variant.history(n, n)).tobytes() for n in (37, 1))]
        assert found == expected


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
