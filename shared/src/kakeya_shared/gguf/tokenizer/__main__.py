"""Prints the directory of a GGUF file's tokenizer: `python -m kakeya_shared.gguf.tokenizer FILE.gguf`."""

import sys

from kakeya_shared.gguf.gguf_error import GgufError
from kakeya_shared.gguf.tokenizer.directory import tokenizer_directory

if __name__ == "__main__":
    try:
        print(tokenizer_directory(sys.argv[1]))
    except GgufError as error:
        sys.exit(str(error))
