"""A chat template, ready to be rendered within its bounds."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from jinja2 import Template

from kakeya.text.rendering import budget
from kakeya.text.rendering.environment import TemplateEnvironment, within
from kakeya.text.rendering.given import Given, Suspicion


@lru_cache(1)
def _environment() -> TemplateEnvironment:
    return TemplateEnvironment()


@lru_cache(16)
def compiled(source: str) -> Template:
    """Models of one family have the same. Raises what Jinja does where it is no template, and OverBudget."""
    with budget.spending(budget.Budget()):
        return _environment().template(source)


def rendered(
    template: Template, variables: Mapping[str, Any], suspicion: Suspicion | None = None, /, **given: Any
) -> str:
    """What the template writes; with stand-ins for the letters that came from texts, where one of these is suspicious.

    Args:
        variables: what it is told, as it is.
        given: what it is told of a conversation, copied. None of it may hold itself.

    Raises:
        OverBudget; PromptRefused where a text holds half a character; whatever the template raises.
    """
    stand_ins, copying = None, Given()
    told = {name: copying.value(value) for name, value in given.items()}
    falls_on = (
        [] if suspicion is None else [suspicion.falls_on(text) for text in copying.texts]
    )  # may name more letters
    if suspicion is not None and any(falls_on):
        stand_ins = suspicion.stand_ins
        copying = Given(stand_ins)
        told = {name: copying.value(value) for name, value in given.items()}
    with budget.spending(budget.Budget(sum(map(len, copying.texts)), stand_ins)):
        return "".join(within(template.root_render_func(template.new_context({**variables, **told}))))
