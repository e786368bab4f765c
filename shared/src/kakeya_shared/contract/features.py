"""What a worker, or a router, can do beyond what its contract version says, by name.

Protobuf drops unknown fields in silence, so a field that an older worker does not know would change an answer without
an error. A worker names what it serves in its Join; the router keeps that in the worker's record, and a request that
needs a feature goes to no worker that does not name it (NO_WORKER, with the feature's name). A router names what it
serves beside each model of its list, and a client asks no other router for it.
"""

CONTRACT_VERSION = 2
"""That router and worker speak to one another; N and N-1 interoperate. Features are named since 2."""

APPEND_LOGPROBS = "append-logprobs"
"""An Append answers with the log-probabilities of its tokens."""

REPETITION_PENALTY = "repetition-penalty"
"""A Generate divides or multiplies the logits of what it has produced."""

MASKED_ENDS = "masked-ends"
"""A Generate can be kept from choosing EOS: `min_tokens`, `ignore_eos`."""

GRAMMAR = "grammar"
"""A Generate can be held to a grammar."""

GRAMMAR_LIBRARY = "grammar-library-"
"""Begins the name of what masks tokens in a worker: the library with its version, and the vocabulary. An answer that
was begun under one goes on under no other."""

REASONING = "reasoning"
"""A Generate is told how the model's thoughts begin and end: a grammar begins behind them; they can have a bound."""

ANSWER_STREAM = "answer-stream"
"""A router's Generates come by one standing call, a step's tokens in one message. It changes no answer."""

TURN_SEARCH = "turn-search"
"""Of a router: it looks for the session of a Turn that has a `search`, and gives a place `start_tags`."""
