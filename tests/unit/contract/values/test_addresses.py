"""Addresses of alerts are shown without what is secret."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from det_jupyter.contract.values.addresses import (
    file_of,
    is_url,
    secrets_in,
    shown,
    stored_number,
    variable_of,
    without_secrets,
)

SECRET = "QzSecretzQ"


@pytest.mark.parametrize(
    ("address", "meaning"),
    [
        ("${HOOK}", (True, False, None, False)),
        ("file:~/.hook", (False, True, None, False)),
        ("file:/run/hook", (False, True, None, False)),
        ("https://example.org/********-12", (False, False, 12, False)),
        ("http://127.0.0.1:8080/x?y=z#q", (False, False, None, True)),
        ("https://[::1]:8080/x", (False, False, None, True)),
        ("$HOOK", (False, False, None, False)),
        ("${HO OK}", (False, False, None, False)),
        ("file:relative", (False, False, None, False)),
        ("https://example.org/********", (False, False, None, False)),
        ("https://example.org/********-0", (False, False, None, False)),
        ("https:///x", (False, False, None, False)),
        ("https://example.org:port/", (False, False, None, False)),
        ("https://example.org/a b", (False, False, None, False)),
        ("ftp://example.org/x", (False, False, None, False)),
        ("https://example.org/x\nHost: y", (False, False, None, False)),
        ("", (False, False, None, False)),
    ],
)
def test_an_address_has_one_meaning_or_none(address: str, meaning: tuple[object, ...]) -> None:
    found = (
        variable_of(address) is not None,
        file_of(address) is not None,
        stored_number(address),
        is_url(address),
    )
    assert found == meaning


@given(
    st.sampled_from(
        [
            "https://example.org/{}",
            "http://example.org:81/a/{}?b#c",
            "https://example.org/?token={}",
            "https://ann:{}@example.org/x",
            "https://{}@example.org/x",
            "https://example.org/#{}",
            "ftp://example.org/{}",
            "{}",
            "${{{}",
            "https://[{}",
            " https://example.org/{}",
        ]
    ),
    st.text(max_size=5),
)
def test_what_is_shown_has_no_secret(form: str, more: str) -> None:
    assume(not (form == "https://{}@example.org/x" and set(more) & set("/?#")))  # it is the host
    address = form.format(SECRET + more)
    assume(variable_of(address) is None)  # "${NAME}" is a name, and no secret
    assert SECRET.lower() not in shown(address).lower()
    assert SECRET.lower() not in shown(address, 3).lower()


@given(st.text())
def test_any_text_can_be_shown(address: str) -> None:
    shown(address)


def test_a_stored_address_is_shown_with_its_number() -> None:
    assert shown("https://ann:x@example.org:8443/y", 7) == "https://example.org:8443/********-7"
    assert stored_number(shown("https://[::1]:80/y", 7)) == 7


@pytest.mark.parametrize(
    "message",
    [
        "Max retries exceeded with url: /s/TOKEN/api/2.0/mlflow/runs",
        "request to https://ann:p%40ss@example.org/s/TOKEN failed",
        "ann has no access with p@ss",
    ],
)
def test_messages_of_libraries_lose_what_an_address_has_beyond_its_place(message: str) -> None:
    secrets = secrets_in("https://ann:p%40ss@example.org/s/TOKEN/")
    shown_text = without_secrets(message, secrets)
    assert not [each for each in ("TOKEN", "ann", "p%40ss", "p@ss") if each in shown_text]
