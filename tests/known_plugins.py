"""What is installed does not change while tests run: it is looked up once."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import entry_points

import pytest

from kakeya_shared import plugins


@contextmanager
def plugins_looked_up_once() -> Iterator[None]:
    """To read what all distributions declare takes 5 ms, and a service that starts asks for it up to three times."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plugins, "entry_points", cache(entry_points))
        yield
