"""Requests as bytes, parsed where an error can be answered: gRPC says INTERNAL to what is no protobuf."""

import inspect
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeAlias

import grpc
from google.protobuf.message import DecodeError

from kakeya_shared.errors import error_details
from kakeya_shared.errors.tree import InvalidField

Parse = Callable[[bytes], Any]
# Generic in the stubs only, hence the quotes.
Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"


def parse(parser: Parse, content: bytes) -> Any:
    """The message. Raises InvalidField."""
    try:
        return parser(content)
    except DecodeError as error:
        message = "the request is not a message of this method in protobuf"
        raise InvalidField(message, metadata={"field": "request"}) from error


def with_parsed_requests(handler: Handler) -> Handler:
    """A handler of somebody else's service (health, reflection) that answers InvalidField to what is no protobuf."""
    parser: Parse = handler.request_deserializer  # type: ignore[assignment]  # generated handlers have one
    if handler.request_streaming:
        return grpc.stream_stream_rpc_method_handler(
            _many_to_many(parser, handler.stream_stream),
            response_serializer=handler.response_serializer,
        )
    if handler.response_streaming:
        return grpc.unary_stream_rpc_method_handler(
            _one(parser, handler.unary_stream),
            response_serializer=handler.response_serializer,
        )
    return grpc.unary_unary_rpc_method_handler(
        _one(parser, handler.unary_unary),
        response_serializer=handler.response_serializer,
    )


def _one(parser: Parse, behaviour: Any) -> Any:
    async def call(content: bytes, context: Context) -> Any:
        answer = behaviour(await _parsed(parser, content, context), context)
        return await answer if inspect.isawaitable(answer) else answer

    return call


def _many_to_many(parser: Parse, behaviour: Any) -> Any:
    async def call(contents: AsyncIterator[bytes], context: Context) -> None:
        requests = (await _parsed(parser, content, context) async for content in contents)
        async for response in behaviour(requests, context):
            await context.write(response)

    return call


async def _parsed(parser: Parse, content: bytes, context: Context) -> Any:
    try:
        return parse(parser, content)
    except InvalidField as error:
        await context.abort(error.status, error.message, ((error_details.DETAILS_KEY, error_details.encode(error)),))
