import re
import ssl
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from kakeya_shared.settings.redis_url import SUPPORTED, CheckedRedisUrl, RedisUrl
from tests.certificates import Authority

SECRET = "hush-hush"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("redis://localhost", ("localhost", 6379, "", 0, "", "")),
        ("REDIS://h:1/15", ("h", 1, "", 15, "", "")),
        ("redis://h:1/?db=3", ("h", 1, "", 3, "", "")),
        ("redis://[::1]:7000/2", ("::1", 7000, "", 2, "", "")),
        ("redis://:p%40ss%2Fw%25rd@h", ("h", 6379, "", 0, "", "p@ss/w%rd")),
        ("redis://us%3Aer:pass@h:1", ("h", 1, "", 0, "us:er", "pass")),
        ("unix:///run/a%20b.sock?db=1", ("", 0, "/run/a b.sock", 1, "", "")),
        ("unix://user:pass@/run/redis.sock", ("", 0, "/run/redis.sock", 0, "user", "pass")),
        ("rediss://h", ("h", 6379, "", 0, "", "")),
    ],
)
def test_what_is_supported_reads_as_it_is_meant(text: str, expected: tuple[str, int, str, int, str, str]) -> None:
    url = RedisUrl.parse(text)
    assert (url.host, url.port, url.path, url.db, url.username, url.password) == expected
    assert (url.tls is not None) == text.startswith("rediss")
    assert not url.password or url.password not in repr(url)


@pytest.mark.parametrize(
    ("text", "kind", "places", "name", "db"),
    [
        ("redis+sentinel://h/one", "sentinel", (("h", 26379),), "one", 0),
        ("redis+sentinel://h:1,[::1],h3/my.one/3", "sentinel", (("h", 1), ("::1", 26379), ("h3", 26379)), "my.one", 3),
        ("rediss+sentinel://h/one?db=2", "sentinel", (("h", 26379),), "one", 2),
        ("redis+cluster://h,h2:7", "cluster", (("h", 6379), ("h2", 7)), "", 0),
        ("rediss+cluster://h/0", "cluster", (("h", 6379),), "", 0),
        ("redis://h:1/2", "server", (("h", 1),), "", 2),
        ("unix:///run/redis.sock", "server", (), "", 0),
    ],
)
def test_some_servers_are_named_by_those_that_know_them(
    text: str, kind: str, places: tuple[tuple[str, int], ...], name: str, db: int
) -> None:
    url = RedisUrl.parse(text)
    assert (url.kind, url.places, url.name, url.db) == (kind, places, name, db)
    assert (url.tls is not None) == text.startswith("rediss")


def test_each_server_has_the_credentials_of_its_kind(tmp_path: Path) -> None:
    url = RedisUrl.parse("redis+sentinel://us%3Aer:p%40ss@h/one/3?sentinel_username=s&sentinel_password=p%2Fq")
    assert url.server("::1", 7) == "redis://us%3Aer:p%40ss@[::1]:7/3"
    assert url.sentinel("h", 26379) == "redis://s:p%2Fq@h:26379"
    assert "p@ss" not in repr(url)
    assert "p/q" not in repr(url)
    assert RedisUrl.parse("redis+sentinel://:x@h/one").sentinel("h", 1) == "redis://h:1"
    authority = Authority(tmp_path)
    of_node = RedisUrl.parse(f"rediss+cluster://h?ssl_ca_certs={authority.path}").server("n", 1)
    assert RedisUrl.parse(of_node).tls is not None
    assert of_node.startswith("rediss://n:1/0?ssl_ca_certs=")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not the URL of a Redis"),
        (SECRET, "not the URL of a Redis"),
        (f"h:6379/{SECRET}", "not the URL of a Redis"),
        ("redis:h:6379", "not the URL of a Redis"),
        ("http://h", "not the URL of a Redis"),
        ("redis+proxy://h", "not the URL of a Redis"),
        (f"redis+sentinel://:{SECRET}@h:26379", "stands the primary's name"),
        ("redis+sentinel://h:26379/my:master", "stands the primary's name"),
        ("redis+sentinel://h/name/x", "the database is one number"),
        ("redis+sentinel://h/name/0/1", "the database is one number"),
        ("redis+sentinel://h,/name", "no host"),
        ("redis+sentinel://h:1,h2:0/name", "no port"),
        ("redis+sentinel:///name", "no host"),
        ("redis+sentinel://h/name?ssl_ca_certs=x", "an option that is not known"),
        ("redis+cluster://h/1", "no databases"),
        ("redis+cluster://h?db=1", "no databases"),
        ("redis+cluster://h,h2:x", "no port"),
        ("redis+cluster://h?sentinel_password=x", "an option that is not known"),
        (f"redis://:{SECRET}@h1:1,h2:2/0", "several hosts"),
        ("redis://h1:1,h2:2/0", "several hosts"),
        ("redis://h1,h2:2/0", "several hosts"),
        ("redis://", "no host"),
        ("redis:///0", "no host"),
        ("redis://:6379", "no host"),
        ("redis://h:0", "no port"),
        ("redis://h:65536", "no port"),
        ("redis://h:x", "no port"),
        ("redis://h:\u0661", "no port"),
        ("redis://::1:6379", "no port"),
        ("redis://[::1", "no host"),
        ("redis://[nonsense]:1", "no host"),
        ("redis://h\u00f6st:1", "no host"),
        ("redis://h h:1", "a blank"),
        ("redis://h:1\n/0", "a blank"),
        ("redis://h/one", "the database is one number"),
        ("redis://h/-1", "the database is one number"),
        ("redis://h/0/1", "the database is one number"),
        ("redis://h/0?db=x", "the database is one number"),
        ("redis://h/1?db=2", "the database is one number"),
        ("redis://h/0#x", "a `#`"),
        ("redis://:100%@h", "that begins no escape"),
        (f"redis://:12/{SECRET}@h:6379", "no host"),
        (f"redis://u:12/{SECRET}@h:6379", "the database is one number"),
        (f"redis://u:12?{SECRET}@h:6379", "an option that is not known"),
        (f"redis://u:12?{SECRET}=1@h:6379", "an option that is not known"),
        (f"redis://u:12#{SECRET}@h:6379", "a `#`"),
        (f"redis://:[{SECRET}@h:6379", "no host"),
        (f"redis://h?password={SECRET}", "an option that is not known"),
        ("redis://h?decode_responses=no", "an option that is not known"),
        ("redis://h?max_connections=x", "an option that is not known"),
        ("redis://h?ssl_certfile=x", "an option that is not known"),
        ("redis://h?socket_timeout=x", "--redis-timeout-seconds"),
        ("redis://h?db=1&db=2", "twice"),
        ("unix://run/redis.sock", "absolute path"),
        ("unix://", "absolute path"),
        ("unix:///run/redis.sock?db=x", "the database is one number"),
        ("rediss://h?ssl_cert_reqs=maybe", "none|optional|required"),
        ("rediss://h?ssl_check_hostname=maybe", "true|false"),
        ("rediss://h?ssl_ca_certs=/nowhere", "cannot be used: No such file"),
        ("rediss://h?ssl_certfile=/nowhere", "cannot be used: No such file"),
        ("rediss://h?ssl_keyfile=/nowhere", "needs ssl_certfile"),
    ],
)
def test_what_is_not_is_refused_in_one_line_without_a_word_of_it(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)) as raised:
        RedisUrl.parse(text)
    message = str(raised.value)
    assert SECRET not in message
    assert "\n" not in message
    assert SUPPORTED in message or "option" in message or "ssl_" in message or "time-outs" in message


def test_tls_is_as_the_options_say(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.pair("client")
    files = f"ssl_ca_certs={authority.path}&ssl_certfile={pair.cert}&ssl_keyfile={pair.key}"

    def context(options: str) -> ssl.SSLContext:
        tls = RedisUrl.parse(f"rediss://h?{options}").tls
        assert tls is not None
        return tls

    assert (context(files).check_hostname, context(files).verify_mode) == (True, ssl.CERT_REQUIRED)
    assert len(context(files).get_ca_certs()) == 1
    assert context("ssl_check_hostname=false").check_hostname is False
    assert context("ssl_cert_reqs=none").verify_mode == ssl.CERT_NONE
    assert context("ssl_cert_reqs=optional").verify_mode == ssl.CERT_OPTIONAL


def test_the_end_of_a_line_in_a_file_is_no_part_of_it() -> None:
    assert TypeAdapter(CheckedRedisUrl).validate_python(" redis://h/1\n") == "redis://h/1"
