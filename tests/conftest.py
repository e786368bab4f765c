"""What every test shares."""

import gc
import os
import signal
from collections.abc import Generator, Iterator

import pytest
from hypothesis import HealthCheck, settings

# On a busy machine an example takes as long as it takes.
settings.register_profile("whatever else is busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("whatever else is busy")

# Read when torch is loaded, as workers do it: threads that spin for one another on cores that other tests use take up
# to fifty times as long.
os.environ.setdefault("GOMP_SPINCOUNT", "2000")

# A job in the background of a script ignores SIGINT, and one under nohup SIGHUP; what is ignored stays ignored in the
# processes that tests start and send signals.
for _number, _default in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _default)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported for the tests stays, and is millions of objects: garbage is not sought among them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """Signals are handled after a test as before: uvloop leaves what a service has set that ran in this process."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        return (yield)
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is not handler:
                signal.signal(number, handler)


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests, and the processes they start, neither read nor fill the caches of whoever runs them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, "XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield
