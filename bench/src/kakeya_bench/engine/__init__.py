"""`python -m kakeya_bench.engine`: the worker's engine beside transformers and llama.cpp, each stepped directly."""
