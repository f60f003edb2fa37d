"""What is posted to each kind of address, and when it is tried again."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from det_jupyter.contract.messages import AlertNews
from det_jupyter.contract.values.alerts import AlertKind
from det_jupyter.master.delivery.alert_requests import is_passing, request_of, variables_of
from det_jupyter.master.delivery.alerts import GIVE_UP_S, next_attempt


def news(**changes: Any) -> AlertNews:
    facts: dict[str, Any] = {
        "id": "a1",
        "event": AlertKind.FAILED,
        "at": 5.0,
        "title": "experiment 7 (digits) failed",
        "text": "trial 9: ValueError: <no> & *no*",
        "experiment_id": 7,
        "name": "digits",
        "state": "ERROR",
        "trial_id": 9,
    }
    return AlertNews(**facts | changes)


def test_slack_gets_a_text_without_links_and_mentions() -> None:
    url, body = request_of("slack", "https://hooks.example.org/x", news(title="<!channel>"))
    assert url == "https://hooks.example.org/x"
    assert body == {"text": "*&lt;!channel&gt;*\ntrial 9: ValueError: &lt;no&gt; &amp; ∗no∗"}


@pytest.mark.parametrize(
    ("address", "server", "topic"),
    [
        ("https://ntfy.sh/mine", "https://ntfy.sh/", "mine"),
        ("http://host:81/mine/?auth=x", "http://host:81/?auth=x", "mine"),
        ("https://host/below/mine", "https://host/below", "mine"),
    ],
)
def test_ntfy_gets_its_topic_in_the_body(address: str, server: str, topic: str) -> None:
    url, body = request_of("ntfy", address, news())
    assert (url, body["topic"]) == (server, topic)
    assert body["title"] == "experiment 7 (digits) failed"
    assert body["message"].startswith("trial 9")
    assert body["priority"] == 4
    assert request_of("ntfy", address, news(text="", event=AlertKind.ENDED))[1] == {
        "topic": topic,
        "title": "experiment 7 (digits) failed",
        "message": "experiment 7 (digits) failed",
        "priority": 3,
        "tags": ["white_check_mark"],
    }


def test_a_webhook_gets_everything_as_json() -> None:
    url, body = request_of("webhook", "https://host/x", news())
    assert url == "https://host/x"
    assert AlertNews.model_validate_json(json.dumps(body)) == news()


@pytest.mark.parametrize("kind", list(AlertKind))
def test_each_kind_has_all_forms(kind: AlertKind) -> None:
    for way in ("slack", "ntfy", "webhook"):
        json.dumps(request_of(way, "https://host/x", news(event=kind)), allow_nan=False)


@given(st.text(), st.text())
def test_variables_of_a_command_are_valid(title: str, text: str) -> None:
    values = variables_of(news(title=title, text=text, trial_id=None))
    assert all("\0" not in value for value in values.values())
    assert values["DET_ALERT_EVENT"] == "failed"
    assert values["DET_ALERT_TRIAL"] == ""


def test_attempts_are_made_less_often_and_come_to_an_end() -> None:
    at, now, times = 100.0, 100.0, []
    for attempts in range(1, 1000):
        following = next_attempt(at, attempts, now)
        if following is None:
            break
        times.append(following - now)
        now = following
    assert times[:6] == [5.0, 20.0, 80.0, 320.0, 1280.0, 3600.0]
    assert set(times[5:]) == {3600.0}
    assert at + GIVE_UP_S - 3600 <= now <= at + GIVE_UP_S


@given(
    st.integers(1, 10**6),
    st.floats(0, 1e9),
    st.floats(allow_nan=False, allow_infinity=False),
)
def test_an_attempt_is_never_at_once_nor_far_away(
    attempts: int, now: float, asked_s: float
) -> None:
    at = next_attempt(now, attempts, now, asked_s=asked_s)
    assert at is None or now + 5 <= at <= now + 3600


def test_what_a_receiver_asks_for_is_followed() -> None:
    assert next_attempt(0.0, 1, 0.0, asked_s=60.0) == 60.0
    assert next_attempt(0.0, 1, 0.0, asked_s=10**9) == 3600.0
    assert [status for status in (200, 400, 404, 408, 429, 500, 503) if is_passing(status)] == [
        408,
        429,
        500,
        503,
    ]
