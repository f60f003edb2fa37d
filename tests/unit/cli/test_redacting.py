"""What a support bundle must not have."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from det_jupyter.cli.redacting import REMOVED, Redactor

SECRET = "s3cr3t-Value_of.mine"


@pytest.mark.parametrize(
    "text",
    [
        f"HF_TOKEN={SECRET}",
        f"export DB_PASSWORD='{SECRET} and more'",
        f'{{"api_key": "{SECRET}", "lr": 0.1}}',
        f"Authorization: Bearer {SECRET}",
        f"authorization: token {SECRET}",
        f"GET /api?token={SECRET}&after=3",
        f"clone https://ann:{SECRET}@example.com/x.git",
        f"clone https://{SECRET}@example.com/x.git",
        f"aws_secret_access_key: {SECRET}",
        f"password={SECRET};Cookie: session={SECRET}",
        f"-----BEGIN RSA PRIVATE KEY-----\n{SECRET}\n-----END RSA PRIVATE KEY-----",
        f"-----BEGIN PRIVATE KEY-----\n{SECRET}",
        "password: 12345678",
        "key hf_abcdefghijklmnopqrstuv",
        "ghp_abcdefghijklmnopqrstuvwxyz0123",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcDEF123",
        "AKIAIOSFODNN7EXAMPLE",
    ],
)
def test_what_looks_like_a_secret_is_taken_out(text: str) -> None:
    said = Redactor().text(text)
    assert REMOVED in said
    assert Redactor().text(said) == said
    for part in (SECRET, "12345678", "abcdefghijklmn", "IOSFODNN", "eyJzdWIi"):
        assert part not in said


@pytest.mark.parametrize(
    "text",
    [
        "tokens: 512, tokens/s 3.5e4", "num_tokens=100_000", "max_new_tokens: 7",
        "trial=3 rank=1 | loss 0.5", "http://127.0.0.1:8888/lab", "a@b", "token count: none",
        "File \"/home/ann/train.py\", line 3, in <module>",
    ],
)  # fmt: skip
def test_what_is_no_secret_stays(text: str) -> None:
    assert Redactor().text(text) == text


def test_documents_keep_their_form_and_lose_their_secrets() -> None:
    document = {
        "environment": {"environment_variables": {"cpu": [f"A={SECRET}", "B"]}},
        "registry_auth": {"username": "ann", "password": SECRET},
        "data": {"url": f"s3://k:{SECRET}@bucket", "num_tokens": 3, "api_key": SECRET},
        "hyperparameters": {"lr": 0.1, "names": [f"token={SECRET}"], "none": None},
    }
    assert Redactor().document(document) == {
        "environment": {"environment_variables": {"cpu": [f"A={REMOVED}", "B"]}},
        "registry_auth": {"username": "ann", "password": REMOVED},
        "data": {"url": f"s3://{REMOVED}@bucket", "num_tokens": 3, "api_key": REMOVED},
        "hyperparameters": {"lr": 0.1, "names": [f"token={REMOVED}"], "none": None},
    }


def test_long_lines_take_no_longer_than_others() -> None:
    text = "a" * 300_000
    began = time.process_time()
    assert Redactor(["secret"]).text(text) == text
    assert time.process_time() - began < 5


@given(st.text(min_size=4, max_size=40), st.text(max_size=60), st.text(max_size=60))
def test_a_known_secret_is_nowhere(secret: str, before: str, after: str) -> None:
    if secret not in REMOVED * 2:
        redactor = Redactor([secret, "other"])
        assert secret not in redactor.text(before).replace(REMOVED, "")
        assert secret not in redactor.document({"x": [before + secret]})["x"][0].replace(
            REMOVED, "\0"
        )
        assert REMOVED in redactor.text(before + secret + after)
