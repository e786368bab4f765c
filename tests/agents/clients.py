"""The frameworks whose agents are driven, each where it is installed."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from tests.clients.environments import folder, program
from tests.loops.talking import ROOT

_AI_SDK = "ai-sdk"
_TOOLS = "tools.mjs"


@dataclass(frozen=True)
class Framework:
    """One that people have.

    Attributes:
        name: for people.
        environment: where it is installed, in build/clients.
        driver: its module, and what it is told; "" of the one that node runs.
    """

    name: str
    environment: str
    driver: str

    def command(self) -> tuple[list[str], Path]:
        """What starts its driver where it is installed, and where; the test fails where it is not."""
        if self.driver:
            module, *told = self.driver.split()
            return [program(self.environment, "python"), "-m", f"tests.agents.drivers.{module}", *told], ROOT
        installed = folder(_AI_SDK, "node_modules").parent
        shutil.copy(ROOT / "tests/agents/drivers/ai_sdk" / _TOOLS, installed)
        return ["node", _TOOLS], installed


LANGCHAIN = Framework("LangChain `create_agent`", "langchain", "langchain_agent")
FRAMEWORKS = (
    LANGCHAIN,
    Framework("LlamaIndex `FunctionAgent`", "llama-index", "llama_index_agent"),
    Framework("Haystack `Agent`", "haystack", "haystack_agent"),
    Framework("pydantic-ai", "loops", "pydantic_tools"),
    Framework("openai-agents", "loops", "agents_sdk_tools"),
    Framework("openai-agents on responses", "loops", "agents_sdk_tools responses"),
    Framework("LiteLLM `openai/`", "litellm", "litellm_tools openai"),
    Framework("LiteLLM `anthropic/`", "litellm", "litellm_tools anthropic"),
    Framework("Vercel AI SDK", _AI_SDK, ""),
)
INSTRUCTOR = Framework("instructor", "instructor", "instructor_forms")
PARSE = Framework("openai-python `parse`", "loops", "parsed_forms")
