"""What clients send to the routes of conversations, and what they get."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from kakeya_http_shim.requests.fields import RequestModel, honoured
from kakeya_http_shim.requests.generation_fields import MetadataText
from kakeya_http_shim.responses_api.input_items import InputItems

Metadata = Annotated[dict[str, MetadataText], Field(max_length=16)]


class CreateConversation(RequestModel):
    """A conversation that is to begin."""

    items: InputItems | None = honoured(None, "what has been said so far")
    metadata: Metadata | None = honoured(None, "up to 16 texts of 512 letters, which the conversation says again")


class UpdateConversation(RequestModel):
    """What is to be noted of a conversation."""

    metadata: Metadata | None = honoured(..., "in place of what was noted before; null: nothing")


class AddItems(RequestModel):
    """Items that go behind those of a conversation."""

    items: Annotated[InputItems, Field(min_length=1)] = honoured(..., "what has been said")


class ConversationObject(BaseModel):
    """A conversation; its items are asked for by themselves."""

    id: str
    object: Literal["conversation"] = "conversation"
    created_at: int = Field(description="Unix time in seconds")
    metadata: dict[str, str]


class DeletedConversation(BaseModel):
    """A conversation is forgotten, with its items."""

    id: str
    object: Literal["conversation.deleted"] = "conversation.deleted"
    deleted: Literal[True] = True


class ConversationItem(BaseModel):
    """An item as it was said, with its id."""

    model_config = ConfigDict(extra="allow")

    id: str
    type: str
