"""A table of checkpoints, each read as transformers reads it: greedy tokens are the same, and end at the same token.

Each family, with its head tied or its own, said rightly, wrongly or nowhere, by itself and within a model that sees;
with ends in each file that may say them; and with nothing in config.json but what no model of these sizes can leave
out.
"""

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText, PreTrainedTokenizerFast

from kakeya.text.chat_tokenizer import ChatTokenizer
from kakeya_bench.rivals.checkpoint import TINY, random_model
from kakeya_worker.engine.lanes.lane import Lane
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.retention import SessionOptions, sink_window
from kakeya_worker.engine.seams.verifier import ModelRefused, Verifier
from kakeya_worker.mlx_backend import MlxVerifier
from kakeya_worker.models import families
from kakeya_worker.models.language_part import _WRAPPERS, config_of
from kakeya_worker.torch_backend import TorchVerifier
from tests.checkpoints import save_random_vision, save_vision

FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "smollm3")
PROMPT = list(range(7, 37))
NUM_GREEDY, MIN_DISTINCT = 32, 16
GEOMETRY = LaneGeometry(sink=4, window=92, chunk=32)
HEAD = "lm_head.weight"

Tensors = dict[str, torch.Tensor]


def greedy_of_transformers(model: Any, **settings: Any) -> list[int]:
    """What it generates, by the ends that it was loaded with."""
    with torch.inference_mode():
        output = model.generate(
            torch.tensor([PROMPT]), max_new_tokens=NUM_GREEDY, do_sample=False, pad_token_id=0, **settings
        )
    return [int(token) for token in output[0, len(PROMPT) :]]


def greedy(directory: Path, ends: Collection[int] = (), backend: type[Verifier] = TorchVerifier) -> list[int]:
    """What Kakeya generates in float32."""
    verifier = backend(str(directory), weights="float32", kv_dtype="auto", num_threads=1, cache_directory=None)
    verifier.allocate(GEOMETRY, 1)
    lane = Lane(GEOMETRY, 0, sink_window(SessionOptions(), GEOMETRY))
    tokens: list[int] = []
    row = lane.row(tuple(PROMPT))
    while True:
        verifier.forward([row])
        lane.commit(row)
        tokens.append(int(np.argmax(verifier.logits([0])[0])))
        if tokens[-1] in ends or len(tokens) == NUM_GREEDY:
            return tokens
        row = lane.row((tokens[-1],))


def mostly_heavy(cases: Collection[Any], *quick: Any) -> list[Any]:
    """Parameters; all but a few of them are left to `make test-heavy`."""
    return [pytest.param(case, marks=() if case in quick else pytest.mark.heavy) for case in cases]


def loaded(directory: Path) -> Any:
    """As transformers loads it, in float32."""
    config = json.loads((directory / "config.json").read_text())
    kind = AutoModelForImageTextToText if "text_config" in config else AutoModelForCausalLM
    return kind.from_pretrained(directory, dtype=torch.float32).eval()


def edit_config(directory: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    path = directory / "config.json"
    config = json.loads(path.read_text())
    edit(config)
    path.write_text(json.dumps(config))


def edit_tables(directory: Path, edit: Callable[[Tensors, str, str], None]) -> None:
    """Changes embedding and head, given by the names that they have in the file."""
    path = directory / "model.safetensors"
    tensors = load_file(path)
    embedding = next(name for name in tensors if name.endswith("embed_tokens.weight"))
    # The head of a model that sees stands at the top, as transformers 5 writes it.
    edit(tensors, embedding, HEAD)
    save_file(tensors, path, metadata={"format": "pt"})


def say_ties(directory: Path, said: bool | None) -> None:
    """In config.json alone; of a part, nowhere else."""

    def edit(config: dict[str, Any]) -> None:
        config.get("text_config", {}).pop("tie_word_embeddings", None)
        config.pop("tie_word_embeddings", None)
        if said is not None:
            config["tie_word_embeddings"] = said

    edit_config(directory, edit)


def _twice(tensors: Tensors, embedding: str, head: str) -> None:
    tensors[head] = tensors[embedding].clone()


def _head_alone(tensors: Tensors, embedding: str, head: str) -> None:
    tensors[head] = tensors.pop(embedding)


def _as_it_is(tensors: Tensors, embedding: str, head: str) -> None:
    """Nothing."""


@dataclass(frozen=True)
class Head:
    """How a checkpoint has its output head.

    Attributes:
        is_tied: the embedding is the head, too.
        said: tie_word_embeddings in config.json; None where it says nothing.
        tables: what is changed of the two tables in the file.
    """

    is_tied: bool
    said: bool | None
    tables: Callable[[Tensors, str, str], None] = _as_it_is


HEADS = {
    "tied": Head(is_tied=True, said=True),
    "tied-in-the-file-too": Head(is_tied=True, said=True, tables=_twice),
    "tied-in-the-file-said-nowhere": Head(is_tied=True, said=None, tables=_twice),
    "tied-as-the-head-alone": Head(is_tied=True, said=True, tables=_head_alone),
    "untied": Head(is_tied=False, said=False),
    "untied-said-nowhere": Head(is_tied=False, said=None),
    "untied-said-tied": Head(is_tied=False, said=True),
}


def save(directory: Path, family: str, head: Head, wrapper: str | None = None) -> Path:
    shape = {**TINY, "tie_word_embeddings": head.is_tied}
    if wrapper is None:
        random_model(family, **shape).save_pretrained(directory)
    else:
        vision = "pixtral" if wrapper == "mistral3" else "clip_vision_model"
        save_random_vision(directory, wrapper, text=family, vision=vision, tie_word_embeddings=head.is_tied)
    edit_tables(directory, head.tables)
    say_ties(directory, head.said)
    return directory


@pytest.mark.parametrize(
    "head", mostly_heavy(HEADS, "tied-as-the-head-alone", "untied-said-nowhere", "untied-said-tied")
)
@pytest.mark.parametrize("family", FAMILIES)
def test_the_head_is_that_of_transformers(tmp_path: Path, family: str, head: str) -> None:
    directory = save(tmp_path, family, HEADS[head])
    expected = greedy_of_transformers(loaded(directory))
    assert len(set(expected)) >= MIN_DISTINCT
    assert greedy(directory) == expected


@pytest.mark.parametrize("family", FAMILIES)
def test_a_head_that_is_missing_is_the_embedding_where_the_family_says_so(tmp_path: Path, family: str) -> None:
    """Transformers makes a random head elsewhere, which nobody can mean."""
    directory = save(tmp_path, family, Head(is_tied=True, said=None))
    model, report = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, output_loading_info=True)
    assert (family == "smollm3") == (not report["missing_keys"])
    if report["missing_keys"]:
        with pytest.raises(ModelRefused, match=r"config\.json does not say that they are one"):
            greedy(directory)
    else:
        assert greedy(directory) == greedy_of_transformers(model.eval())


# The wrapper's default is false in the first, true in the second.
SEERS = [*[("llava", family) for family in FAMILIES], ("mistral3", "mistral")]
SEEN_HEADS = ["tied", "tied-in-the-file-said-nowhere", "untied", "untied-said-nowhere", "untied-said-tied"]


@pytest.mark.parametrize("head", mostly_heavy(SEEN_HEADS, "untied-said-tied"))
@pytest.mark.parametrize("seer", mostly_heavy(SEERS, ("llava", "llama"), ("mistral3", "mistral")), ids="-".join)
def test_the_head_of_a_model_that_sees_is_that_of_transformers(
    tmp_path: Path, seer: tuple[str, str], head: str
) -> None:
    wrapper, family = seer
    directory = save(tmp_path, family, HEADS[head], wrapper)
    expected = greedy_of_transformers(loaded(directory))
    assert len(set(expected)) >= MIN_DISTINCT
    assert greedy(directory) == expected


@pytest.mark.parametrize(
    ("wrapper", "family", "outside", "of_part"),
    [
        ("llava", "llama", None, True),
        ("llava", "llama", False, True),
        ("llava", "smollm3", None, None),  # by the family's default
        ("mistral3", "mistral", None, None),  # by the wrapper's
        ("mistral3", "mistral", None, False),
    ],
)
def test_a_missing_head_is_tied_by_whoever_may_say_so(
    tmp_path: Path, wrapper: str, family: str, outside: bool | None, of_part: bool | None
) -> None:
    directory = save(tmp_path, family, HEADS["tied"], wrapper)
    say_ties(directory, outside)
    if of_part is not None:
        edit_config(directory, lambda config: config["text_config"].update(tie_word_embeddings=of_part))
    assert greedy(directory) == greedy_of_transformers(loaded(directory))


# What no small model can leave out; the other sizes follow from what is left out.
_SMALL: dict[str, Any] = {
    "vocab_size": 512,
    "hidden_size": 256,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "pad_token_id": None,
}
_NUM_HEADS = {"llama": 4, "mistral": 16, "qwen2": 32, "qwen3": 32, "smollm3": 8}


def save_by_default(directory: Path, family: str) -> Path:
    """A model of which config.json says nothing but its family and its size."""
    said = {**_SMALL, "num_attention_heads": _NUM_HEADS[family]}
    random_model(family, **said).save_pretrained(directory)
    (directory / "generation_config.json").unlink()
    (directory / "config.json").write_text(json.dumps({"model_type": family, **said}))
    return directory


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_left_out_is_the_family_s_own(tmp_path: Path, family: str) -> None:
    directory = save_by_default(tmp_path, family)
    model = loaded(directory)
    expected = greedy_of_transformers(model)
    assert len(set(expected)) >= MIN_DISTINCT
    assert greedy(directory) == expected


@pytest.mark.parametrize("family", mostly_heavy(FAMILIES, "mistral"))
def test_what_a_model_that_sees_leaves_out_is_the_family_s_own(tmp_path: Path, family: str) -> None:
    """As Llava's checkpoints are written: of its part only what is not the family's default."""
    part = {"model_type": family, **_SMALL, "num_attention_heads": _NUM_HEADS[family]}
    save_vision(tmp_path, "llava", part, "clip_vision_model")
    edit_config(tmp_path, lambda config: config.update(text_config=part))
    assert greedy(tmp_path) == greedy_of_transformers(loaded(tmp_path))


@pytest.mark.parametrize("family", FAMILIES)
def test_every_default_is_that_of_transformers(family: str) -> None:
    ours, theirs = families.parse({"model_type": family}), AutoConfig.for_model(family)
    rope = theirs.rope_parameters
    assert {
        "vocab_size": ours.vocab_size,
        "hidden_size": ours.hidden_size,
        "intermediate_size": ours.intermediate_size,
        "num_hidden_layers": ours.num_layers,
        "num_attention_heads": ours.num_heads,
        "num_key_value_heads": ours.num_kv_heads,
        "max_position_embeddings": ours.max_positions,
        "rms_norm_eps": ours.rms_norm_eps,
        "sliding_window": ours.sliding_window,
        "tie_word_embeddings": ours.tied_head,
    } == {
        name: getattr(theirs, name, None)
        for name in (
            "vocab_size",
            "hidden_size",
            "intermediate_size",
            "num_hidden_layers",
            "num_attention_heads",
            "num_key_value_heads",
            "max_position_embeddings",
            "rms_norm_eps",
            "sliding_window",
            "tie_word_embeddings",
        )
    }
    assert ours.head_dim == (getattr(theirs, "head_dim", None) or theirs.hidden_size // theirs.num_attention_heads)
    assert (ours.rope_theta, ours.rope_scaling.kind) == (rope["rope_theta"], rope["rope_type"])
    assert theirs.hidden_act == "silu"
    rotating = getattr(theirs, "no_rope_layers", [1] * theirs.num_hidden_layers)
    assert ours.layers_without_rope == tuple(layer for layer, rotates in enumerate(rotating) if not rotates)


@pytest.mark.parametrize("wrapper", sorted(_WRAPPERS))
def test_what_is_known_of_a_wrapper_is_what_transformers_does(wrapper: str) -> None:
    kind = type(AutoConfig.for_model(wrapper))
    part = kind.sub_configs_defaults["text_config"]
    ties = kind.default_config_fields().get("tie_word_embeddings", False)
    assert _WRAPPERS[wrapper] == (part.model_type, bool(ties))
    given = {"hidden_size": 1024} if wrapper == "fun_asr_nano" else {}  # which no other part of it fits
    ours = families.parse(config_of({"model_type": wrapper, "text_config": given}))
    theirs = AutoConfig.for_model(wrapper, text_config=given).text_config
    assert (ours.family, ours.hidden_size, ours.num_layers) == (
        theirs.model_type,
        theirs.hidden_size,
        theirs.num_hidden_layers,
    )
    assert (ours.num_kv_heads, ours.rms_norm_eps) == (theirs.num_key_value_heads, theirs.rms_norm_eps)
    assert (ours.rope_theta, ours.max_positions) == (
        theirs.rope_parameters["rope_theta"],
        theirs.max_position_embeddings,
    )


@dataclass(frozen=True)
class Ends:
    """Which files say what ends an answer.

    A number stands for that one of the undisturbed answer's tokens, repeated ones not counted.

    Attributes:
        tokenizer: its own.
        generation: eos_token_id of generation_config.json; "no file" where there is none.
        config, part: of config.json and, where the model is one of several parts, of the language model's.
    """

    tokenizer: int | None = None
    generation: Any = "no file"
    config: Any = None
    part: Any = None


ENDS = {
    "nowhere": Ends(),
    "generation": Ends(generation=6),
    "generation-several": Ends(generation=[13, 7]),
    "generation-before-config": Ends(generation=10, config=4),
    "config": Ends(config=6),
    "config-several": Ends(config=[13, 7]),
    "tokenizer": Ends(tokenizer=6),
    "tokenizer-and-generation": Ends(tokenizer=10, generation=[13, 7]),
    "tokenizer-and-config": Ends(tokenizer=10, config=[13, 7]),
    "part": Ends(part=6),
    "part-several": Ends(part=[13, 7]),
    "config-before-part": Ends(config=10, part=4),
}
PLAIN_ENDS = [name for name in ENDS if "part" not in name]


def save_ends(directory: Path, ends: Ends, answer: Sequence[int]) -> int | None:
    """Writes them; returns the tokenizer's own."""

    def tokens(said: Any) -> Any:
        return [answer[number] for number in said] if isinstance(said, list) else None if said is None else answer[said]

    def edit(config: dict[str, Any]) -> None:
        config.pop("eos_token_id", None)
        if ends.config is not None:
            config["eos_token_id"] = tokens(ends.config)
        if "text_config" in config:
            config["text_config"]["eos_token_id"] = tokens(ends.part)

    edit_config(directory, edit)
    (directory / "generation_config.json").unlink(missing_ok=True)
    if ends.generation != "no file":
        (directory / "generation_config.json").write_text(json.dumps({"eos_token_id": tokens(ends.generation)}))
    own = tokens(ends.tokenizer)
    words = Tokenizer(models.WordLevel({f"w{id_}": id_ for id_ in range(TINY["vocab_size"])}, unk_token="w0"))
    marks = {} if own is None else {"eos_token": f"w{own}"}
    PreTrainedTokenizerFast(tokenizer_object=words, **marks).save_pretrained(directory)
    return own


def check_ends(directory: Path, ends: Ends) -> None:
    answer = list(dict.fromkeys(greedy_of_transformers(loaded(directory))))
    assert len(answer) >= MIN_DISTINCT
    own = save_ends(directory, ends, answer)
    model = loaded(directory)
    of_files = model.generation_config.eos_token_id
    all_ends = [] if of_files is None else of_files if isinstance(of_files, list) else [of_files]
    # Its generate knows nothing of the tokenizer, whose own end it is told here.
    told = {} if own is None else {"eos_token_id": [own, *all_ends]}
    expected = greedy_of_transformers(model, **told)
    assert (len(expected) < NUM_GREEDY) == (ends != Ends())
    assert greedy(directory, ChatTokenizer(str(directory)).eos_token_ids) == expected


@pytest.mark.parametrize("ends", mostly_heavy(PLAIN_ENDS, "config-several", "tokenizer-and-generation"))
@pytest.mark.parametrize("family", FAMILIES)
def test_an_answer_ends_where_it_does_in_transformers(tmp_path: Path, family: str, ends: str) -> None:
    check_ends(save(tmp_path, family, HEADS["tied"]), ENDS[ends])


@pytest.mark.parametrize("ends", mostly_heavy(ENDS, "part-several"))
def test_an_answer_of_a_model_that_sees_ends_where_it_does_in_transformers(tmp_path: Path, ends: str) -> None:
    check_ends(save(tmp_path, "llama", HEADS["untied"], "llava"), ENDS[ends])


@pytest.mark.parametrize("head", mostly_heavy(HEADS, "untied-said-tied"))
def test_mlx_has_the_same_head(tmp_path: Path, head: str) -> None:
    directory = save(tmp_path, "qwen2", HEADS[head])
    assert greedy(directory, backend=MlxVerifier) == greedy_of_transformers(loaded(directory))
