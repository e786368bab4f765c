"""What the runtime serves, each model with the tokenizer that belongs to it."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from hashlib import blake2b
from pathlib import Path

import structlog

from kakeya import AsyncClient, KakeyaError, ServedModel
from kakeya.text.chat_tokenizer import TokenizerError
from kakeya_http_shim.models.model_tokenizer import ModelTokenizer
from kakeya_http_shim.problems import ApiError, from_kakeya, model_not_found, unavailable
from kakeya_http_shim.tools.families import family_of
from kakeya_shared import installed_models

_log = structlog.get_logger()

_LISTED_SECONDS = 1.0
"""A listing answers for so long: few requests wait for one, and a key that is revoked is noticed as soon."""
_MAX_KEYS = 1024
_LATEST = ":latest"
"""What Ollama's clients put behind a name that has no tag."""


@dataclass(frozen=True)
class TextModel:
    """A model that can be talked to in words.

    Attributes:
        name: as the client named it.
        served: as the runtime serves it.
        tool_family: in whose syntax it writes calls of tools (`tools.families`); None where that is not known.
    """

    name: str
    served: ServedModel
    tokenizer: ModelTokenizer
    tool_family: str | None = None


class _Listing:
    """What the runtime serves as one key shows it: asked once for all who want to know at the same time."""

    def __init__(self, client: AsyncClient) -> None:
        self.models = asyncio.create_task(client.list_models())
        self.models.add_done_callback(lambda models: models.cancelled() or models.exception())  # nobody may be left
        self._began_at = time.monotonic()

    @property
    def is_old(self) -> bool:
        return self.models.done() and time.monotonic() - self._began_at > _LISTED_SECONDS


class ServedModels:
    """Models by name, as a caller's key shows them.

    Args:
        tokenizers: of a model, by its name: a directory, an installed model or a hub id.
        aliases: models, by another name that they are served under.
        tool_families: by a model's name, where its chat template does not show it.
        make_tokenizer: from one of these sources, and a `template_file` where there is one.
        patterns: models, by patterns (fnmatch) of names that are none of a served one; the first that fits counts.
        chat_templates: of a model, by its name: a file that takes the place of the tokenizer's own.

    Attributes:
        is_loaded: the tokenizers that were named are, and those whose chat template was.
    """

    def __init__(
        self,
        client: AsyncClient,
        tokenizers: Mapping[str, str],
        aliases: Mapping[str, str],
        make_tokenizer: Callable[..., ModelTokenizer] = ModelTokenizer,
        tool_families: Mapping[str, str] | None = None,
        *,
        patterns: Mapping[str, str] | None = None,
        chat_templates: Mapping[str, Path] | None = None,
    ) -> None:
        self._client = client
        self._make_tokenizer = make_tokenizer
        self._sources = dict(tokenizers)
        self._aliases = dict(aliases)
        self._tool_families = dict(tool_families or {})
        self._patterns = dict(patterns or {})
        self._chat_templates = dict(chat_templates or {})
        self._loaded: dict[str, ModelTokenizer] = {}
        self._loading = asyncio.Lock()
        self._installed = frozenset(installed_models.names())
        self._listings: OrderedDict[bytes, _Listing] = OrderedDict()
        self._said: set[str] = set()
        self.is_loaded = False

    async def load(self) -> None:
        """Loads the tokenizers that were named, themselves or their chat template. Raises TokenizerError."""
        for model in dict.fromkeys((*self._sources, *self._chat_templates)):
            await self._tokenizer(model)
        self.is_loaded = True

    async def check(self, api_key: str) -> None:
        """Raises ApiError where the runtime does not take the key, or is not there."""
        await self._listed(api_key)

    async def listed(self, api_key: str) -> dict[str, ServedModel]:
        """What can be asked for by its name, aliases included, sorted. Raises ApiError."""
        served = {model.name: model for model in await self._listed(api_key) if self._source(model.name) is not None}
        aliases = {alias: served[model] for alias, model in self._aliases.items() if model in served}
        return dict(sorted((served | aliases).items()))

    async def listed_as(self, name: str, api_key: str) -> ServedModel | None:
        """What can be asked for by this name, be it one that is not listed. Raises ApiError."""
        listed = await self.listed(api_key)
        return listed.get(name) or listed.get(self._meant(name, listed.values()))

    async def find(self, name: str | None, api_key: str) -> TextModel:
        """The model of a request; without a name the runtime's default.

        Raises:
            ApiError: 404 no such model; 503 no worker serves it now, or there is no tokenizer for it.
        """
        served = await self._listed(api_key)
        wanted = self._meant(name, served) if name else _default(served)
        model = next((model for model in served if model.name == wanted), None)
        if model is None:
            raise self._not_served(name or wanted, wanted)
        tokenizer = await self._known_tokenizer(model.name)
        self._check_tokenizer(model, tokenizer)
        family = self._tool_families.get(model.name) or family_of(tokenizer.tool_template)
        return TextModel(name or model.name, model, tokenizer, family)

    async def _listed(self, api_key: str) -> list[ServedModel]:
        """Raises ApiError."""
        place = blake2b(api_key.encode(), digest_size=16).digest()  # keys are not kept
        listing = self._listings.get(place)
        if listing is None or listing.is_old:
            listing = self._listings[place] = _Listing(self._client.with_api_key(api_key))
            self._listings.move_to_end(place)
            if len(self._listings) > _MAX_KEYS:
                self._listings.popitem(last=False)
        try:
            return await asyncio.shield(listing.models)
        except KakeyaError as error:
            if self._listings.get(place) is listing:
                del self._listings[place]
            raise from_kakeya(error) from error

    def _meant(self, name: str, served: Iterable[ServedModel]) -> str:
        """The model that a name stands for: its own, where it is one, perhaps with `:latest` behind it."""
        names = {*self._aliases, *(model.name for model in served)}
        for known in (name, name.removesuffix(_LATEST)):
            if known in names:
                return self._aliases.get(known, known)
        return next((model for pattern, model in self._patterns.items() if fnmatchcase(name, pattern)), name)

    def _not_served(self, name: str, wanted: str) -> ApiError:
        if wanted in self._sources or wanted in self._loaded:
            return unavailable(f"no worker serves the model {name!r} now", "no_worker")
        return model_not_found(name)

    def _source(self, model: str) -> str | None:
        if model in self._sources:
            return self._sources[model]
        return model if model in self._installed else None

    async def _known_tokenizer(self, model: str) -> ModelTokenizer:
        try:
            return await self._tokenizer(model)
        except TokenizerError as error:
            self._say(model, f"no tokenizer: {error}")
            raise unavailable(f"the model {model!r} cannot be used here: {error}", "no_tokenizer") from error

    async def _tokenizer(self, model: str) -> ModelTokenizer:
        if model in self._loaded:
            return self._loaded[model]
        source = self._source(model)
        if source is None:
            raise TokenizerError(f"none was named for it (--tokenizer {model}=DIR_OR_HUB_ID)")
        async with self._loading:
            if model not in self._loaded:
                own = {"template_file": file} if (file := self._chat_templates.get(model)) else {}
                self._loaded[model] = tokenizer = await asyncio.to_thread(self._make_tokenizer, source, **own)
                if tokenizer.leaves_out_system:
                    _log.warning("the chat template leaves out system messages", model=model)
        return self._loaded[model]

    def _check_tokenizer(self, model: ServedModel, tokenizer: ModelTokenizer) -> None:
        """Raises ApiError where the tokenizer is another model's: its answers would be other words."""
        of_worker, of_ours = model.tokenizer_digest, tokenizer.digest
        if of_worker and of_ours and of_worker != of_ours:
            fault = f"the workers' has the digest {of_worker[:12]}, this one {of_ours[:12]}"
        elif tokenizer.num_token_ids > model.vocab_size:
            fault = f"it makes ids up to {tokenizer.num_token_ids - 1}, the model knows {model.vocab_size}"
        else:
            return
        self._say(model.name, f"the tokenizer {tokenizer.name} is another model's: {fault}")
        raise unavailable(f"the tokenizer here is not the one of {model.name!r}", "tokenizer_mismatch")

    def _say(self, model: str, problem: str) -> None:
        if problem not in self._said:  # once, not with each request
            self._said.add(problem)
            _log.error("a model cannot be used", model=model, problem=problem)


def _default(served: Sequence[ServedModel]) -> str:
    default = next((model.name for model in served if model.is_default), None)
    if default is not None:
        return default
    if not served:
        raise unavailable("no worker serves a model now", "no_worker")
    names = ", ".join(model.name for model in served)
    raise ApiError(400, f"name a model; served are: {names}", param="model", code="missing_required_parameter")
