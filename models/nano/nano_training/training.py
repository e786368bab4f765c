"""The training loop: short conversations first, whole contexts then; Muon for matrices, AdamW for the rest."""

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional
from transformers import Qwen3Config, Qwen3ForCausalLM

from nano_training.corpus import Encoder, seeded, sequence
from nano_training.muon import Muon
from nano_training.saved_steps import SavedSteps
from nano_training.shape import TRAINED_CONTEXT, model_config

WARM_UP_STEPS: Final = 50
MAX_GRADIENT_NORM: Final = 1.0


@dataclass(frozen=True)
class Phase:
    """Steps of one shape.

    Attributes:
        num_tokens: of each sequence.
        num_sequences: in a step.
    """

    num_steps: int
    num_tokens: int
    num_sequences: int


@dataclass(frozen=True)
class Recipe:
    """All that a training run depends on.

    Attributes:
        learning_rate: the highest, of Muon with its update scaled to AdamW's (arXiv 2502.16982); AdamW has half of it.
        weight_decay: decoupled, of the matrices.
    """

    seed: int
    num_threads: int
    phases: tuple[Phase, ...]
    learning_rate: float = 4e-3
    weight_decay: float = 0.1

    @property
    def num_steps(self) -> int:
        return sum(phase.num_steps for phase in self.phases)


RECIPE: Final = Recipe(
    seed=20261121,
    num_threads=2,
    phases=(Phase(800, 256, 32), Phase(800, TRAINED_CONTEXT, 6)),
)


@dataclass(frozen=True)
class Progress:
    """After a step: the mean loss of answers' tokens since the last report, in nats."""

    step: int
    num_steps: int
    answer_loss: float
    tokens_per_second: float
    seconds_left: float


def new_model(seed: int, *, eos_token_id: int) -> Any:
    """An untrained model in float32."""
    torch.manual_seed(seed)
    config = model_config(eos_token_id=eos_token_id) | {"dtype": "float32", "max_position_embeddings": TRAINED_CONTEXT}
    return Qwen3ForCausalLM(Qwen3Config(**config, attn_implementation="sdpa"))


class Trainer:
    """A model with its optimizers: Muon for the matrices, AdamW for embedding and norms.

    Args:
        model: trained in place.
        forward: its forward pass, compiled or not.
    """

    def __init__(self, model: Any, forward: Any, recipe: Recipe) -> None:
        self._model, self._forward = model, forward
        self._parameters = list(model.parameters())
        named = list(model.named_parameters())
        self._muon = Muon((p for name, p in named if _is_matrix(name, p)), weight_decay=recipe.weight_decay)
        others = [p for name, p in named if not _is_matrix(name, p)]
        self._adam = torch.optim.AdamW(others, lr=recipe.learning_rate, betas=(0.9, 0.95), weight_decay=0.0)

    def step(self, ids: Tensor, weights: Tensor, learning_rate: float) -> float:
        """One step; ids and weights are [sequences, tokens + 1]. Returns the mean loss of answers' tokens, in nats."""
        logits = self._forward(input_ids=ids[:, :-1]).logits  # [sequences, tokens, vocab]
        losses = functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
        weights = weights[:, 1:].flatten()
        loss = (losses * weights).sum() / weights.sum()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._parameters, MAX_GRADIENT_NORM)
        self._muon.learning_rate = learning_rate
        self._adam.param_groups[0]["lr"] = learning_rate / 2
        self._muon.step()
        self._adam.step()
        self._adam.zero_grad()
        return float(losses.detach()[weights >= 1].mean())

    def state_dict(self) -> dict[str, Any]:
        """All that steps have changed."""
        return {
            "model": self._model.state_dict(),
            "muon": self._muon.state_dict(),
            "adam": self._adam.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from what `state_dict` gave."""
        self._model.load_state_dict(state["model"])
        self._muon.load_state_dict(state["muon"])
        self._adam.load_state_dict(state["adam"])


def _is_matrix(name: str, parameter: Tensor) -> bool:
    return parameter.ndim == 2 and "embed" not in name


def train(
    trainer: Trainer,
    tokenizer: Tokenizer,
    recipe: Recipe,
    report: Callable[[Progress], None],
    report_steps: int = 20,
    saved: SavedSteps | None = None,
) -> None:
    """Takes the steps of the recipe: all, or those after the last that was saved.

    Raises:
        ValueError: what was saved is of another recipe or of other code.
    """
    first = saved.restore(trainer, asdict(recipe)) if saved else 0
    started = reported = time.monotonic()
    losses, num_tokens = [], 0
    for step, (ids, weights) in enumerate(_batches(tokenizer, recipe, skip=first), first + 1):
        losses.append(trainer.step(ids, weights, _rate(step, recipe)))
        num_tokens += ids.numel()
        if step % report_steps == 0 or step == recipe.num_steps:
            now = time.monotonic()
            pace = num_tokens / (now - reported)
            left = (now - started) / (step - first) * (recipe.num_steps - step)
            report(Progress(step, recipe.num_steps, float(np.mean(losses)), pace, left))
            losses, num_tokens, reported = [], 0, now
        if saved and step % saved.every_steps == 0:
            saved.save(step, trainer, asdict(recipe))


def _rate(step: int, recipe: Recipe) -> float:
    """Rises in the first steps, then falls to nothing in a straight line (arXiv 2502.15938)."""
    num_rising = min(WARM_UP_STEPS, recipe.num_steps // 10 + 1)
    left = (recipe.num_steps + 1 - step) / (recipe.num_steps + 1 - num_rising)
    return recipe.learning_rate * min(step / num_rising, left)


def _batches(tokenizer: Tokenizer, recipe: Recipe, *, skip: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Ids and weights of the steps after `skip`, both [sequences, tokens + 1]; no conversation comes twice."""
    encode, index = Encoder(tokenizer), 0
    for phase in recipe.phases:
        num_skipped = min(skip, phase.num_steps)
        skip -= num_skipped
        index += num_skipped * phase.num_sequences
        for _ in range(phase.num_steps - num_skipped):
            drawn = [
                sequence(seeded(recipe.seed, "train", index + number), encode, phase.num_tokens + 1)
                for number in range(phase.num_sequences)
            ]
            index += phase.num_sequences
            yield (
                torch.from_numpy(np.stack([each.ids for each in drawn])),
                torch.from_numpy(np.stack([each.weights for each in drawn])),
            )
