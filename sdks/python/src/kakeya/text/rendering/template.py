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


def compiled(source: str) -> Template:
    """Raises what Jinja does where it is no template, and OverBudget."""
    with budget.spending(budget.Budget()):
        return _environment().template(source)


def rendered(
    template: Template, variables: Mapping[str, Any], suspicion: Suspicion | None = None, /, **given: Any
) -> str:
    """What the template writes; with stand-ins for the letters that came from suspicious texts.

    Args:
        variables: what it is told, as it is.
        given: what it is told of a conversation, copied. None of it may hold itself.

    Raises:
        OverBudget; PromptRefused where a text holds half a character; whatever the template raises.
    """
    copying = Given(suspicion)
    copies = {name: copying.value(value) for name, value in given.items()}
    if copying.is_marked:
        copying = Given(suspicion, marks_all=True)
        copies = {name: copying.value(value) for name, value in given.items()}
    told = {**variables, **copies}
    stand_ins = suspicion.stand_ins if suspicion is not None and copying.is_marked else None
    with budget.spending(budget.Budget(copying.num_letters, stand_ins)):
        return "".join(within(template.root_render_func(template.new_context(told))))
