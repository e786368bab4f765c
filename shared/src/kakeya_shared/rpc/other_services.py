"""Services of other libraries, health and reflection: they answer InvalidField to what is no protobuf."""

import inspect
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc

from kakeya_shared.errors import error_details
from kakeya_shared.errors.tree import InvalidField

Parse = Callable[[bytes], Any]
"""The message of what has come. Raises InvalidField."""


def with_parsed_requests(
    handler: "grpc.RpcMethodHandler[Any, Any]", parse: Callable[[Callable[[bytes], Any], bytes], Any]
) -> "grpc.RpcMethodHandler[Any, Any]":
    """A handler that parses what it receives.

    Args:
        parse: with the parser of the handler's own; raises InvalidField.
    """
    parser: Callable[[bytes], Any] = handler.request_deserializer  # type: ignore[assignment]  # generated handlers have one

    def parsed(content: bytes) -> Any:
        return parse(parser, content)

    if handler.request_streaming:
        return grpc.stream_stream_rpc_method_handler(
            _many_to_many(parsed, handler.stream_stream),
            response_serializer=handler.response_serializer,
        )
    if handler.response_streaming:
        return grpc.unary_stream_rpc_method_handler(
            _one(parsed, handler.unary_stream),
            response_serializer=handler.response_serializer,
        )
    return grpc.unary_unary_rpc_method_handler(
        _one(parsed, handler.unary_unary),
        response_serializer=handler.response_serializer,
    )


def _one(parse: Parse, behaviour: Any) -> Any:
    async def call(content: bytes, context: Any) -> Any:
        answer = behaviour(await _parsed(parse, content, context), context)
        return await answer if inspect.isawaitable(answer) else answer

    return call


def _many_to_many(parse: Parse, behaviour: Any) -> Any:
    async def call(contents: AsyncIterator[bytes], context: Any) -> None:
        requests = (await _parsed(parse, content, context) async for content in contents)
        async for response in behaviour(requests, context):
            await context.write(response)

    return call


async def _parsed(parse: Parse, content: bytes, context: Any) -> Any:
    try:
        return parse(content)
    except InvalidField as error:
        await context.abort(error.status, error.message, ((error_details.DETAILS_KEY, error_details.encode(error)),))
