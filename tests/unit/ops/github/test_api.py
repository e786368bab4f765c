"""What is asked of GitHub, and how its refusals are taken."""

import time

import pytest

from ops.github.api import MAX_TRIES, Api, GitHubError, next_page
from tests.ports import free_port
from tests.unit.ops.github.conftest import REPOSITORY, TOKEN, GitHub

HUNDRED = [{"filename": f"f{number}"} for number in range(100)]


@pytest.fixture
def slept() -> list[float]:
    return []


@pytest.fixture
def api(hub: GitHub, slept: list[float]) -> Api:
    return Api(REPOSITORY, TOKEN, hub.url, sleep=slept.append)


def test_all_pages_are_read(api: Api, hub: GitHub) -> None:
    hub.files = [{"filename": f"f{number}"} for number in range(350)]
    assert [each["filename"] for each in api.pages("pulls/7/files")] == [f"f{number}" for number in range(350)]
    assert len(hub.requests) == 4


@pytest.mark.parametrize("number", [0, 1, 100, 101, 200])
def test_no_page_is_asked_for_in_vain(api: Api, hub: GitHub, number: int) -> None:
    hub.files = [{"filename": f"f{each}"} for each in range(number)]
    assert len([*api.pages("pulls/7/files")]) == number
    assert len(hub.requests) == max(-(-number // 100), 1)


def test_the_token_goes_nowhere_else(api: Api, hub: GitHub) -> None:
    hub.files = [*HUNDRED, *HUNDRED]
    hub.next_of_pages = "http://elsewhere.example"
    with pytest.raises(GitHubError, match="which is not GitHub's API"):
        list(api.pages("pulls/7/files"))
    hub.faults = [(301, {"Location": f"{hub.url}/elsewhere"}, "")]
    with pytest.raises(GitHubError, match="301") as error:
        api.get("pulls/7")
    assert error.value.status == 301
    assert hub.requests[1:] == [f"GET /repos/{REPOSITORY}/pulls/7"]


@pytest.mark.parametrize(
    ("status", "headers", "low", "high"),
    [
        (429, {"Retry-After": "7"}, 7, 7),
        (403, {"Retry-After": "7"}, 7, 7),
        (429, {}, 60, 60),
        (403, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "NOW+30"}, 25, 32),
        (403, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "NOW-30"}, 1, 1),
        (500, {}, 2, 2),
        (503, {}, 2, 2),
    ],
)
def test_a_refusal_for_a_while_is_waited_for(
    api: Api, hub: GitHub, slept: list[float], status: int, headers: dict[str, str], low: float, high: float
) -> None:
    now = {name: str(int(time.time() + int(value[3:]))) for name, value in headers.items() if value.startswith("NOW")}
    hub.faults = [(status, headers | now, '{"message": "later"}')]
    assert api.get("pulls/7")["number"] == 7
    assert low <= slept[0] <= high
    assert len(slept) == 1


def test_a_limit_that_lasts_is_an_error(api: Api, hub: GitHub, slept: list[float]) -> None:
    hub.faults = [(403, {"Retry-After": "3600"}, '{"message": "API rate limit exceeded"}')]
    with pytest.raises(
        GitHubError, match=r"403 API rate limit exceeded \(again in 3600 s, which is too long to wait\)"
    ):
        api.get("pulls/7")
    assert slept == []


def test_it_gives_up_after_a_few_tries(api: Api, hub: GitHub, slept: list[float]) -> None:
    hub.faults = [(502, {}, "<html>Bad gateway</html>")] * MAX_TRIES
    with pytest.raises(GitHubError, match="502 <html>Bad gateway</html>"):
        api.get("pulls/7")
    assert slept == [2, 4, 8, 16]
    assert hub.faults == []


@pytest.mark.parametrize("status", [401, 403, 404, 422])
def test_what_would_be_answered_alike_is_asked_once(api: Api, hub: GitHub, status: int) -> None:
    hub.faults = [(status, {}, '{"message": "No."}')]
    with pytest.raises(GitHubError, match=f"GET {hub.url}/repos/{REPOSITORY}/pulls/7: {status} No.") as error:
        api.get("pulls/7")
    assert error.value.status == status
    assert len(hub.requests) == 1


def test_an_answer_that_is_no_json_is_asked_for_again(api: Api, hub: GitHub, slept: list[float]) -> None:
    hub.faults = [(200, {}, "{")]
    assert api.get("pulls/7")["number"] == 7
    assert slept == [2]


def test_nobody_answers(slept: list[float]) -> None:
    api = Api(REPOSITORY, TOKEN, f"http://127.0.0.1:{free_port()}", sleep=slept.append)
    with pytest.raises(GitHubError, match="refused") as error:
        api.get("pulls/7")
    assert error.value.status is None
    assert len(slept) == MAX_TRIES - 1


def test_a_wrong_token(hub: GitHub) -> None:
    with pytest.raises(GitHubError, match="401 Bad credentials"):
        Api(REPOSITORY, "another", hub.url).get("pulls/7")


def test_what_must_be_in_the_environment() -> None:
    with pytest.raises(GitHubError, match="GITHUB_REPOSITORY and GITHUB_TOKEN must be set"):
        Api.of_environment({"GITHUB_TOKEN": ""})
    assert Api.of_environment({"GITHUB_TOKEN": "t", "GITHUB_REPOSITORY": "a/b"}).repository == "a/b"


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        ("", None),
        ('<https://x/?page=2>; rel="next", <https://x/?page=9>; rel="last"', "https://x/?page=2"),
        ('<https://x/?page=1>; rel="prev", <https://x/?page=3>; rel="next"', "https://x/?page=3"),
        ('<https://x/?page=1>; rel="first"', None),
    ],
)
def test_the_next_page_of_a_header(link: str, expected: str | None) -> None:
    assert next_page(link) == expected
