"""Matrices in the types of GGUF's blocks, computed with as they are: no weight is rounded anew."""
