"""A request to the HTTP shim as the simplest of clients sends it."""

import json
import ssl
import urllib.request
from typing import Any
from urllib.error import HTTPError


def chat(address: str, model: str, *, trusted: ssl.SSLContext | None = None, **headers: str) -> tuple[int, Any]:
    """The status and the JSON of a chat completion; by TLS where `trusted` says whom to believe."""
    body = {"model": model, "messages": [{"role": "user", "content": "What is 2 + 3?"}], "temperature": 0}
    url = f"http{'s' if trusted else ''}://{address}/v1/chat/completions"
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    request.add_header("content-type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=60, context=trusted) as answer:
            return answer.status, json.load(answer)
    except HTTPError as error:
        with error:
            return error.code, json.load(error)
