"""One turn of a conversation in a process of its own, traced as an application would be.

python -m tests.integration.converse ADDRESS
"""

import asyncio
import sys

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

import kakeya

SECRET_TOKEN = 987


async def main(address: str) -> None:
    provider = TracerProvider(resource=Resource.create({"service.name": "application"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    async with kakeya.AsyncClient(address) as client, await client.create_session() as session:
        async with session.turn([SECRET_TOKEN] * 20, max_tokens=6) as generation:
            async for _ in generation:
                pass
        assert generation.done is not None
        print(session.id, generation.done.op_id)
    provider.shutdown()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
