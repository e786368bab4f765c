"""The tokenizer in a GGUF file, as the files that lie beside a checkpoint on the Hugging Face Hub."""
