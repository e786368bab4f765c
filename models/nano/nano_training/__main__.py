"""Trains kakeya-nano: `python -m nano_training --output DIR` (about an hour on two cores).

A run that was stopped goes on where it left off, to the same weights, when it is started again.
"""

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path

import torch

from nano_training.agreement import agreement
from nano_training.checkpoint import write_checkpoint
from nano_training.corpus import seeded, text_of
from nano_training.saved_steps import SavedSteps
from nano_training.tokenizer import end_of_turn, train_tokenizer
from nano_training.training import RECIPE, Phase, Progress, Trainer, new_model, train

_TOKENIZER_CONVERSATIONS, _TOKENIZER_EXCHANGES = 4000, 24


def main() -> int:
    arguments = _parser().parse_args()
    recipe = replace(RECIPE, seed=arguments.seed, num_threads=arguments.threads)
    if arguments.scale != 1:
        recipe = replace(recipe, phases=tuple(_scaled(phase, arguments.scale) for phase in recipe.phases))
    _say("training the tokenizer")
    texts = (
        text_of(seeded(recipe.seed, "tokenizer", i), _TOKENIZER_EXCHANGES) for i in range(_TOKENIZER_CONVERSATIONS)
    )
    tokenizer = train_tokenizer(texts)
    model = new_model(recipe.seed, eos_token_id=end_of_turn(tokenizer))
    _say(f"training {sum(each.numel() for each in model.parameters()):,} parameters in {recipe.num_steps} steps")
    torch.set_num_threads(recipe.num_threads)
    saved = SavedSteps(arguments.output / "unfinished.pt")
    if saved.path.exists():
        _say(f"going on from {saved.path}")
    try:
        train(Trainer(model, torch.compile(model), recipe), tokenizer, recipe, _report, saved=saved)
    except ValueError as error:
        sys.exit(f"nano_training: {error}")
    model.eval()
    write_checkpoint(arguments.output, tokenizer, model.state_dict())
    saved.remove()
    _say(f"wrote {arguments.output}; held-out answers that greedy decoding would write word for word:")
    for kind, share in agreement(model, tokenizer, seed=recipe.seed, num_sequences=arguments.held_out).items():
        print(f"{kind:16} {share}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m nano_training", description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="checkpoint directory to write")
    parser.add_argument("--seed", type=int, default=RECIPE.seed, help=f"of text and weights (default: {RECIPE.seed})")
    parser.add_argument("--threads", type=int, default=RECIPE.num_threads, help="for the arithmetic (default: 2)")
    parser.add_argument(
        "--held-out", type=int, default=200, metavar="N", help="conversations to test on (default: 200)"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of steps; below 1 to try something out")
    return parser


def _scaled(phase: Phase, scale: float) -> Phase:
    return replace(phase, num_steps=max(1, round(phase.num_steps * scale)))


def _report(progress: Progress) -> None:
    _say(
        f"step {progress.step}/{progress.num_steps}: loss {progress.answer_loss:.3f} an answer's token, "
        f"{progress.tokens_per_second:,.0f} tokens/s, about {progress.seconds_left / 60:.0f} min left"
    )


def _say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
