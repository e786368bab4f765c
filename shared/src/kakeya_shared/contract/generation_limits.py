"""Bounds of what a Generate and an Append ask for, as the contract states them; router and worker both refuse what is
beyond.
"""

# As OpenAI's API: beyond it a penalty outweighs the model and the text falls apart.
MAX_PENALTY = 2.0
# Above 0: a logit is divided by it. Beyond 2 hardly a token comes twice, articles and commas neither.
MAX_REPETITION_PENALTY = 2.0
# Rare words of a language, or a label set; each step adds them all, and the operation's record holds them (16 KB).
MAX_LOGIT_BIASES = 1024
# As OpenAI's API: enough to judge a choice, about 250 bytes a token on the wire.
MAX_LOGPROBS = 20
# Of an append's tokens and their likeliest ids together: an answer of 1.5 MB, under the 4 MiB that gRPC's clients take.
MAX_APPEND_LOGPROBS = 1 << 17
# Every token is compared with all of them; a role marker or a closing tag is a few tokens long.
MAX_STOP_SEQUENCES = 16
MAX_STOP_SEQUENCE_TOKENS = 64
# The operation's record holds it. A schema of a hundred tools with their descriptions has half of that.
MAX_GRAMMAR_BYTES = 1 << 18
# Of what opens or ends a thought; a tag that is no token of its own is some letters long.
MAX_REASONING_MARK_TOKENS = 16
