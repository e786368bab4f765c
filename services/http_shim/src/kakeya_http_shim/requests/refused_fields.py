"""Fields of other servers' APIs that are known and not served, each with the reason."""

from typing import Final

from kakeya_http_shim.requests.fields import LATER

_NO_SEARCH = "one token is chosen after the other; there is no search"
_OTHER_SAMPLER = "the samplers are temperature, top_k, top_p and min_p, with the penalties"
_OWN_TEMPLATE = "the model's own chat template is used"
_AT_START = "a matter of the worker's start, not of a request"

OF_PEERS: Final[dict[str, str]] = {
    # vLLM
    "allowed_token_ids": LATER,
    "bad_words": LATER,
    "guided_choice": "kakeya.choice is its name here",
    "guided_grammar": "kakeya.grammar is its name here, in llguidance's form of Lark",
    "guided_json": "response_format is its name here",
    "guided_regex": "kakeya.regex is its name here",
    "structured_outputs": "response_format is its name here, and kakeya.regex, choice and grammar",
    "prompt_logprobs": "/v1/completions with echo and logprobs has them",
    "include_stop_str_in_output": "a stop text is never part of the answer",
    "skip_special_tokens": "special tokens have no text in an answer",
    "truncate_prompt_tokens": "what does not fit is forgotten or refused, as kakeya.on_overflow says",
    "use_beam_search": _NO_SEARCH,
    "length_penalty": _NO_SEARCH,
    "logits_processors": "logit_bias is served",
    "chat_template": _OWN_TEMPLATE,
    "documents": "say it in a message",
    "priority": "the router's queue is fair between tenants",
    "request_id": "send it as the header x-request-id",
    "return_token_ids": LATER,
    "return_tokens_as_token_ids": LATER,
    # llama.cpp
    "grammar": "kakeya.grammar is its name here, in llguidance's form of Lark",
    "json_schema": "response_format is its name here",
    "n_predict": "max_tokens is its name here",
    "n_probs": "logprobs is its name here",
    "repeat_penalty": "repetition_penalty is its name here",
    "repeat_last_n": "repetition_penalty counts the whole answer",
    "typical_p": _OTHER_SAMPLER,
    "mirostat": _OTHER_SAMPLER,
    "dry_multiplier": _OTHER_SAMPLER,
    "xtc_probability": _OTHER_SAMPLER,
    "samplers": _OTHER_SAMPLER,
    "id_slot": "the router chooses the lane",
    # Ollama
    "options": "its fields are fields of the request here",
    "format": "response_format is its name here",
    "num_ctx": _AT_START,
}
"""What both APIs refuse."""
