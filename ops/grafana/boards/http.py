"""The HTTP shim: requests, and whether conversations go on in their sessions."""

from ops.grafana.board import Board, Panel, Query
from ops.grafana.promql import mean, quantiles, rate

_REUSED, _APPENDED = rate("kakeya_http_reused_tokens_total"), rate("kakeya_http_appended_tokens_total")

HTTP = Board(
    "kakeya-http",
    "Kakeya: HTTP",
    "The HTTP shim: requests, and whether conversations go on in their sessions.",
    {
        "Conversations": [
            Panel(
                "Answers by session",
                "Continued ones pay for their new tokens only.",
                [Query(rate("kakeya_http_sessions_total", by="state"), "{{state}}")],
                "ops",
                is_stacked=True,
            ),
            Panel(
                "Reused",
                "Of the tokens that chats sent, those that their sessions had.",
                [Query(f"{_REUSED} / ({_REUSED} + {_APPENDED})")],
                "percentunit",
            ),
            Panel(
                "Places without names",
                "A conversation that is sent again is not found there.",
                [Query(rate("kakeya_http_failed_tags_total", by="place"), "{{place}}")],
                "ops",
            ),
        ],
        "Requests": [
            Panel(
                "Requests a second",
                "By status.",
                [Query(rate("kakeya_http_requests_total", by="status"), "{{status}}")],
                "reqps",
                is_stacked=True,
            ),
            Panel(
                "Seconds of requests",
                "On average, by route.",
                [Query(mean("kakeya_http_request_duration_seconds", by="route"), "{{route}}")],
                "s",
            ),
            Panel(
                "Time to first token",
                "From the start of work on a request.",
                quantiles("kakeya_http_time_to_first_token_seconds"),
                "s",
            ),
            Panel(
                "Time a token",
                "Of an answer's tokens but the first.",
                quantiles("kakeya_http_time_per_output_token_seconds"),
                "s",
            ),
            Panel(
                "Tokens a second",
                "Of prompts and of answers.",
                [
                    Query(rate("kakeya_http_prompt_tokens_total"), "prompts"),
                    Query(rate("kakeya_http_completion_tokens_total"), "answers"),
                ],
                "ops",
            ),
            Panel(
                "In work",
                "Requests that are worked on, and those that wait for a place.",
                [
                    Query("sum(kakeya_http_in_flight_requests)", "in work"),
                    Query("sum(kakeya_http_waiting_requests)", "waiting"),
                ],
            ),
            Panel(
                "Turned away a second",
                "No place, by why.",
                [Query(rate("kakeya_http_rejected_requests_total", by="reason"), "{{reason}}")],
                "reqps",
            ),
            Panel(
                "Left a second",
                "Clients that did not wait for the end of their answer.",
                [Query(rate("kakeya_http_disconnected_requests_total"))],
                "reqps",
            ),
        ],
    },
)
