"""The conformance suite of the verifier seam: every backend keeps the engine's law, or the suite turns red.

Run `python -m kakeya_worker.conformance BACKEND`; see CONFORMANCE.md beside the worker's README.
"""
