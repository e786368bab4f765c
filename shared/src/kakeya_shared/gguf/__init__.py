"""Models as GGUF files, the format of llama.cpp and Ollama: what one says of itself, its tensors, its tokenizer.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. No array library is needed.
"""
