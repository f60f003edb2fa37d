"""The forms of alerts: what is posted where, and when it is tried again. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from det_jupyter.contract.messages import AlertNews
from det_jupyter.contract.values.alerts import AlertKind
from det_jupyter.contract.values.text import printable

GIVE_UP_S = 24 * 3600.0  # after it was raised
_FIRST_RETRY_S, _FACTOR, _LONGEST_RETRY_S = 5.0, 4.0, 3600.0
_MOST_ATTEMPTS = 40  # 24 hours of hourly attempts and more
_URGENT = (AlertKind.FAILED, AlertKind.HANG, AlertKind.NAN, AlertKind.DISK)
_TAGS = {
    AlertKind.FAILED: "x",
    AlertKind.HANG: "hourglass",
    AlertKind.NAN: "warning",
    AlertKind.DISK: "floppy_disk",
    AlertKind.ENDED: "white_check_mark",
}
# Answers after which the same request may succeed later.
_PASSING = (408, 425, 429)


def request_of(way: str, url: str, news: AlertNews) -> tuple[str, dict[str, Any]]:
    """Return the URL to post to, and the JSON to post.

    Args:
        way: slack, ntfy or webhook.
    """
    match way:
        case "slack":
            text = "\n".join(filter(None, (f"*{_escaped(news.title)}*", _escaped(news.text))))
            return url, {"text": text}
        case "ntfy":
            parts = urlsplit(url)
            root, _, topic = parts.path.strip("/").rpartition("/")
            server = urlunsplit(parts._replace(path=f"/{root}"))
            return server, {
                "topic": topic,
                "title": news.title,
                "message": news.text or news.title,
                "priority": 4 if news.event in _URGENT else 3,
                "tags": [_TAGS[news.event]],
            }
        case _:
            return url, news.model_dump(mode="json")


def _escaped(text: str) -> str:
    """Escape what Slack would read as a link or a mention."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("*", "∗")


def variables_of(news: AlertNews) -> Mapping[str, str]:
    """Return the environment variables of a command."""
    return {
        "DET_ALERT_EVENT": news.event,
        "DET_ALERT_EXPERIMENT": str(news.experiment_id),
        "DET_ALERT_TRIAL": "" if news.trial_id is None else str(news.trial_id),
        "DET_ALERT_TITLE": printable(news.title),
        "DET_ALERT_TEXT": printable(news.text),
    }


def is_passing(status: int) -> bool:
    """Return whether a later attempt may succeed after an answer with this status."""
    return status >= 500 or status in _PASSING


def next_attempt(
    raised_at: float, attempts: int, now: float, *, asked_s: float | None = None
) -> float | None:
    """Return when to try again; None: never.

    Args:
        raised_at: When the alert was raised.
        attempts: How many have failed.
        asked_s: How long the receiver asks to wait.

    >>> [next_attempt(0.0, attempts, 0.0) for attempts in (1, 2, 3, 9)]
    [5.0, 20.0, 80.0, 3600.0]
    """
    pause_s = _FIRST_RETRY_S * _FACTOR ** min(attempts - 1, 10)
    pause_s = min(max(pause_s, asked_s or 0.0), _LONGEST_RETRY_S)
    at = now + pause_s
    return None if attempts >= _MOST_ATTEMPTS or at > raised_at + GIVE_UP_S else at
