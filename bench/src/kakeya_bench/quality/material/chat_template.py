"""A model's tokenizer and chat template: dialogues as the tokens that a session of Kakeya would hold.

A session only appends. So each exchange is what stands before the answer, the answer, and the token that ends it, one
after the other; nothing is rendered anew as the dialogue grows.
"""

from functools import cached_property

from kakeya.text import chat_template, tokenizer_files, tokenizer_loading
from kakeya.text.tokenizer_error import TokenizerError
from kakeya_bench.quality.material.script import Tokens
from kakeya_bench.quality.settings import CannotMeasure

_SYSTEM, _USER = "KAKEYA-SYSTEM", "KAKEYA-USER"  # stand in rendered conversations where texts will be
_PLAIN = "{% for message in messages %}{{ message['content'] + '\n' }}{% endfor %}"


class ChatTemplate:
    """The template of a tokenizer; without one, messages are plain lines.

    Args:
        model: a directory, FILE.gguf, ollama:NAME[:TAG], or a model id of the Hub.

    Attributes:
        is_plain: the tokenizer has no chat template.
        eos_token_ids: what ends an answer.

    Raises:
        CannotMeasure: there is no tokenizer, or its chat template leaves out what is said.
    """

    def __init__(self, model: str) -> None:
        try:
            self._tokenizer, directory = tokenizer_loading.load(model)
            source = self._tokenizer.config.templates.get("default", "")
            self.is_plain = not source
            # Templates of models that think before they answer are asked not to; others do not know the word.
            variables = {**self._tokenizer.config.special_tokens, "enable_thinking": False}
            self._template = chat_template.ChatTemplate(source or _PLAIN, model, variables)
            self._template.between("-")  # whether a conversation can go on by it, and begin
            self._template.around([_message("user", _USER)], _USER)
            own = self._tokenizer.eos_token_id
            self.eos_token_ids = {*tokenizer_files.eos_token_ids(directory), *([] if own is None else [own])}
        except TokenizerError as error:
            raise CannotMeasure(str(error)) from error

    @cached_property
    def takes_system(self) -> bool:
        """Whether the template knows system messages; some refuse them, or leave them out."""
        try:
            self._template.around([_message("system", _SYSTEM), _message("user", _USER)], _SYSTEM)
        except TokenizerError:
            return False
        return True

    def encode(self, text: str) -> Tokens:
        """Text as it stands, without special tokens around it."""
        return tuple(self._tokenizer.encode(text))

    def decode(self, tokens: Tokens) -> str:
        """Without special tokens."""
        return self._tokenizer.decode(list(tokens))

    def system(self, text: str | None) -> Tokens:
        """All that stands before the first user's text, the system message first if there is one."""
        messages = [_message("system", text)] if text is not None else []
        return self.encode(self._template.around([*messages, _message("user", _USER)], _USER)[0])

    def first_question(self, text: str) -> Tokens:
        """From the first user's text to where the answer begins."""
        return self.encode(text + self._template.around([_message("user", _USER)], _USER)[1])

    def question(self, text: str) -> Tokens:
        """From the end of an answer to where the next one begins."""
        return self._between_and_end(text)[1]

    def answer(self, text: str) -> Tokens:
        """An answer with the token that ends it, if the template has one."""
        return (*self.encode(text), *self.end_of_answer)

    @cached_property
    def end_of_answer(self) -> Tokens:
        return self._between_and_end("")[0]

    def _between_and_end(self, text: str) -> tuple[Tokens, Tokens]:
        tokens = self.encode(self._template.between(text or "-"))
        num_ends = int(bool(tokens) and tokens[0] in self.eos_token_ids)
        return tokens[:num_ends], tokens[num_ends:]


def _message(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}
