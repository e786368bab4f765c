import pytest

from kakeya_local.stack.supervision.last_words import last_words

REDIS = """\
11:M 25 Nov 2026 04:47:14.600 # Error writing to the AOF file: No space left on device
11:M 25 Nov 2026 04:47:14.604 * DB loaded from append only file: 0.006 seconds
12:C 25 Nov 2026 04:47:14.648 # oO0OoO0OoO0Oo Redis is starting oO0OoO0OoO0Oo
12:C 25 Nov 2026 04:47:14.648 # Redis version=6.2.14, bits=64, commit=40305114, modified=0, pid=3497, just started
12:C 25 Nov 2026 04:47:14.648 # Configuration loaded
12:M 25 Nov 2026 04:47:14.649 * monotonic clock: POSIX clock_gettime
12:M 25 Nov 2026 04:47:14.649 # Server initialized
12:M 25 Nov 2026 04:47:14.649 # WARNING Memory overcommit must be enabled! Without it, a background save may fail
"""
JSON_ERROR = '{"event": "the engine failed", "level": "error"}'


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("", "nothing"),
        ("\n \n", "nothing"),
        ("loading\nout of memory\n\n", "out of memory"),
        (REDIS, REDIS.splitlines()[0]),
        ("reading\nlib.py:3: UserWarning: old\n", "reading"),
        ("lib.py:3: UserWarning: old\n", "lib.py:3: UserWarning: old"),
        ("kakeya worker: error: no such model\nresource_tracker: leaked\n", "kakeya worker: error: no such model"),
        (f'{JSON_ERROR}\n{{"event": "bye", "level": "warning"}}\n', JSON_ERROR),
        ("Traceback (most recent call last):\n  x()\nOSError: [Errno 28] full\nbye\n", "OSError: [Errno 28] full"),
        ("a.b.CudaError: gone\n", "a.b.CudaError: gone"),
        ("an error: long ago\n" + "serving\n" * 50, "serving"),
    ],
)
def test_the_line_that_says_why(said: str, expected: str) -> None:
    assert last_words(said.splitlines()) == expected
