"""A first request to the HTTP API, to be tried in a shell."""

import json
import shlex
from collections.abc import Mapping

_MAX_TOKENS = 64
_PROXY_VARIABLES = ("http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")


def curl_line(url: str, model: str, *, with_key: bool, ca: str = "", environment: Mapping[str, str] = {}) -> str:
    """A chat completion.

    Args:
        with_key: whether it shows $KAKEYA_API_KEY.
        ca: authorities of the certificate behind `url`, in PEM; "" for those that curl knows.
        environment: of the shell; where it names a proxy, that is not asked.
    """
    body = {"model": model, "messages": [{"role": "user", "content": "Hello!"}], "max_tokens": _MAX_TOKENS}
    words = ["curl", shlex.quote(f"{url}/v1/chat/completions"), "-H 'Content-Type: application/json'"]
    if any(environment.get(name) for name in _PROXY_VARIABLES):
        words.append("--noproxy '*'")
    if with_key:
        words.append('-H "Authorization: Bearer $KAKEYA_API_KEY"')
    if ca:
        words.append(f"--cacert {shlex.quote(ca)}")
    return " ".join([*words, "-d", shlex.quote(json.dumps(body))])
