"""The tokenizer: byte-level BPE in the form of Qwen's own, trained on the conversations, and the chat template."""

from collections.abc import Iterable
from typing import Final

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from nano_training.dialogues.message import TOOLS_HEAD, TOOLS_TAIL
from nano_training.shape import MAX_POSITIONS, VOCAB_SIZE

END_OF_TEXT: Final = "<|endoftext|>"
START_OF_TURN: Final = "<|im_start|>"
END_OF_TURN: Final = "<|im_end|>"
_SPECIAL: Final = (END_OF_TEXT, START_OF_TURN, END_OF_TURN)
# Whole tokens, but text: a parser of tool calls has to see them.
_TAGS: Final = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")

# How Qwen2 and Qwen3 split text into words (tokenizer.json of Qwen/Qwen3-0.6B): each digit stands alone.
_WORD: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _jinja(text: str) -> str:
    return "'" + text.replace("\n", "\\n") + "'"


# ChatML with tools as Qwen's template writes them (Hermes format).
CHAT_TEMPLATE: Final = f"""\
{{%- if tools %}}
    {{{{- '<|im_start|>system\\n' }}}}
    {{%- if messages and messages[0].role == 'system' %}}
        {{{{- messages[0].content + '\\n\\n' }}}}
    {{%- endif %}}
    {{{{- {_jinja(TOOLS_HEAD)} }}}}
    {{%- for tool in tools %}}
        {{{{- '\\n' + (tool | tojson) }}}}
    {{%- endfor %}}
    {{{{- {_jinja(TOOLS_TAIL)} + '<|im_end|>\\n' }}}}
{{%- endif %}}
{{%- for message in messages %}}
    {{%- if message.role == 'tool' %}}
        {{%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}}
            {{{{- '<|im_start|>user' }}}}
        {{%- endif %}}
        {{{{- '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}}}
        {{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}}
            {{{{- '<|im_end|>\\n' }}}}
        {{%- endif %}}
    {{%- elif not (message.role == 'system' and loop.first and tools) %}}
        {{{{- '<|im_start|>' + message.role + '\\n' + (message.content or '') }}}}
        {{%- for call in message.tool_calls or [] %}}
            {{%- set function = call.function or call %}}
            {{%- if not loop.first or message.content %}}
                {{{{- '\\n' }}}}
            {{%- endif %}}
            {{{{- '<tool_call>\\n{{"name": "' + function.name + '", "arguments": ' }}}}
            {{{{- function.arguments if function.arguments is string else (function.arguments | tojson) }}}}
            {{{{- '}}\\n</tool_call>' }}}}
        {{%- endfor %}}
        {{{{- '<|im_end|>\\n' }}}}
    {{%- endif %}}
{{%- endfor %}}
{{%- if add_generation_prompt %}}
    {{{{- '<|im_start|>assistant\\n' }}}}
{{%- endif %}}
"""


def train_tokenizer(texts: Iterable[str]) -> Tokenizer:
    """A tokenizer of `VOCAB_SIZE` entries; special tokens and tags are the last ids, as Qwen's are."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_WORD), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=VOCAB_SIZE - len(_SPECIAL) - len(_TAGS),
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
        ),
    )
    tokenizer.add_special_tokens(list(_SPECIAL))
    tokenizer.add_tokens([AddedToken(tag, normalized=False) for tag in _TAGS])
    return tokenizer


def end_of_turn(tokenizer: Tokenizer) -> int:
    """Token id."""
    token_id = tokenizer.token_to_id(END_OF_TURN)
    if token_id is None:
        raise ValueError(f"the tokenizer has no {END_OF_TURN}")
    return token_id


def tokenizer_config() -> dict[str, object]:
    """tokenizer_config.json."""
    return {
        "tokenizer_class": "Qwen2Tokenizer",
        "eos_token": END_OF_TURN,
        "pad_token": END_OF_TEXT,
        "bos_token": None,
        "unk_token": None,
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": MAX_POSITIONS,
        "chat_template": CHAT_TEMPLATE,
    }
