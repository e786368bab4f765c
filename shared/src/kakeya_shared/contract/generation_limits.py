"""Bounds of a Generate's fields, as the contract states them; router and worker both refuse what is beyond."""

# As OpenAI's API: beyond it a penalty outweighs the model and the text falls apart.
MAX_PENALTY = 2.0
# Rare words of a language, or a label set; each step adds them all, and the operation's record holds them (16 KB).
MAX_LOGIT_BIASES = 1024
# As OpenAI's API: enough to judge a choice, about 250 bytes a token on the wire.
MAX_LOGPROBS = 20
# Every token is compared with all of them; a role marker or a closing tag is a few tokens long.
MAX_STOP_SEQUENCES = 16
MAX_STOP_SEQUENCE_TOKENS = 64
