"""What a support bundle must not have."""

from __future__ import annotations

import json
import time
from base64 import b64encode
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from det_jupyter.contract.values.redacting import REMOVED, Redactor, passwords_in

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
        f"clone https://ann:pa/ss@{SECRET}@example.com/x.git",
        f"clone https://ann:{SECRET}/more@example.com",
        f"ann:{SECRET}@db.example.com",
        f"curl -u ann:{SECRET} https://example.com",
        f"python train.py --api-key {SECRET} --lr 0.1",
        f"train --db-password '{SECRET}'",
        f"DB_PASS={SECRET}",
        f"WANDB_KEY={SECRET}",
        f"AccountName=a;AccountKey={SECRET};",
        f"https://a.example.com/b?sv=1&sig={SECRET}",
        f"Set-Cookie: a=1; b={SECRET}",
        f'Authorization: Digest username="ann", response="{SECRET}"',
        f"password: |\n  {SECRET}\nlr: 1",
        f"secrets:\n- {SECRET}\n- {SECRET}\nlr: 1",
        f"secrets:\n  inner:\n    a: {SECRET}\nlr: 1",
        f"secrets: [a, {SECRET}]",
        f"password: two words {SECRET}",
        f"password: 'it''s {SECRET}'",
        f'{{"password": "a\\"{SECRET}"}}',
        f'{{\\"token\\": \\"{SECRET}\\"}}',
        f"auth=('ann', {SECRET!r})",
        f"c.ServerApp.password = u'{SECRET}'",
        f"os.environ['TOKEN'] = {SECRET!r}",
        f"('token', {SECRET!r})",
        f"password=a}}{SECRET}",
        f"?token%3D{SECRET}",
        f"token := {SECRET}",
        f"setenv TOKEN {SECRET}",
        f"machine h login ann password {SECRET}",
        "machine h\n  login ann\n  password hunter2\n",
        "your password is hunter2",
        f"<password>{SECRET}</password>",
        "the token is 0123456789abcdefghijklmnABCD",
        f"-----BEGIN PGP PRIVATE KEY BLOCK-----\n{SECRET}",
        "abcdefghijklmnopqrs\n-----END PRIVATE KEY-----\n",  # the beginning was cut off
        "npm_abcdefghijklmnopqrstuvwxyz",
    ],
)
def test_what_looks_like_a_secret_is_taken_out(text: str) -> None:
    said = Redactor().text(text)
    assert REMOVED in said
    assert Redactor().text(said) == said
    for part in (SECRET, "12345678", "abcdefghijklmn", "IOSFODNN", "eyJzdWIi", "hunter2"):
        assert part not in said


@pytest.mark.parametrize(
    "text",
    [
        "tokens: 512, tokens/s 3.5e4", "num_tokens=100_000", "max_new_tokens: 7",
        "trial=3 rank=1 | loss 0.5", "http://127.0.0.1:8888/lab", "a@b", "token count: none",
        "File \"/home/ann/train.py\", line 3, in <module>", "author: Ann Smith",
        "git clone https://example.com/x.git", "http://127.0.0.1:8888/lab@1", "KeyError: 'loss'",
        "sort_key: 3, attn_key=0.25", "token: None", "compass=north", "WARNING root: a: b",
        "trial_id: 3\nsteps:\n- 1\n",
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
        "registry_auth": {"username": REMOVED, "password": REMOVED},
        "data": {"url": f"s3://{REMOVED}@bucket", "num_tokens": 3, "api_key": REMOVED},
        "hyperparameters": {"lr": 0.1, "names": [f"token={REMOVED}"], "none": None},
    }


@pytest.mark.parametrize(
    "document",
    [
        {"secrets": {"inner": [{"a": SECRET}]}},
        {"password": 12345678},
        {"token": {"type": "const", "val": SECRET}},
        {"args": ["--token", SECRET]},
        {"env": [{"name": "DB_PASSWORD", "value": SECRET}]},
        {"environment_variables": {"A": SECRET}},
        {"environment_variables": {"cuda": {"A": SECRET}}},
        {"environment_variables": [{"A": SECRET}]},
        {f"https://ann:{SECRET}@example.com": 1},
    ],
)
def test_documents_lose_what_has_the_name_of_a_secret(document: dict[str, Any]) -> None:
    found = json.dumps(Redactor().document(document))
    assert SECRET not in found
    assert "12345678" not in found


def test_numbers_and_flags_of_documents_stay() -> None:
    document = {
        "num_tokens": 512, "tokens": {"unit": "count"}, "api_key": None, "use_auth": True,
        "name": "a", "value": "b", "args": ["--steps", "3"],
    }  # fmt: skip
    assert Redactor().document(document) == document


@pytest.mark.parametrize(
    ("secret", "written"),
    [
        ('s\u00fc\u00df/ "x"', 's\u00fc\u00df/ \\"x\\"'),  # JSON
        ('s\u00fc\u00df/ "x"', 's\\u00fc\\u00df/ \\"x\\"'),
        ("s\u00fc'\nx\"", "s\u00fc\\'\\nx\""),  # Python
        ("a b/c+d", "a%20b%2Fc%2Bd"),
        ("a b/c+d", "a%20b/c%2Bd"),
        ("a b/c+d", "a+b%2Fc%2Bd"),
        ("a b/c+d", "YSBiL2MrZA"),
        ("first line of it\nsecond line", "first line of it"),
        (" abcd\n", "abcd"),
    ],
)
def test_a_secret_is_removed_whole_however_it_is_written(secret: str, written: str) -> None:
    assert Redactor([secret]).text(f"<{written}>") == f"<{REMOVED}>"


def test_what_is_left_of_variables_are_their_names() -> None:
    variables = [{"A": SECRET}, [f"B={SECRET}"], f"C={SECRET}", "D", 3]
    assert Redactor().document({"environment_variables": variables}) == {
        "environment_variables": [{"A": REMOVED}, [f"B={REMOVED}"], f"C={REMOVED}", "D", 3]
    }


@pytest.mark.parametrize("write", [quote, json.dumps, repr, lambda text: b64encode(text.encode())])
def test_a_known_secret_is_taken_out_as_others_write_it(write: Callable[[str], object]) -> None:
    secret = 'wo"rd/ä\\n\nx&y'
    assert "rd" not in Redactor([secret]).text(f"sent {write(secret)}")
    lines = "first part\nsecond part"
    assert "part" not in Redactor([lines]).text("rank 0: first part\nrank 1: second part")


def test_passwords_of_urls_are_known() -> None:
    assert set(passwords_in("x=redis://ann:a%2Fb@h and http://127.0.0.1:80/x")) == {"a%2Fb", "a/b"}


def test_long_lines_take_no_longer_than_others() -> None:
    began = time.process_time()
    for part in ("a", "a-", "a.", "://", "a:", " a", "- ", "[", "a_", "\\"):
        text = part * (50_000 // len(part))
        assert Redactor(["secret"]).text(text) == text
    for part in (
        "token",
        "token=",
        "token='",
        "--pass ",
        "secret:\n",
        "a://b:",
        "password: (",
        "auth",
    ):
        Redactor(["secret"]).text(part * (50_000 // len(part)))
    assert time.process_time() - began < 8


@given(st.text(min_size=4, max_size=40), st.text(max_size=60), st.text(max_size=60))
def test_a_known_secret_is_nowhere(secret: str, before: str, after: str) -> None:
    if secret not in REMOVED * 2 and secret.lower() not in ("none", "null", "true", "false"):
        redactor = Redactor([secret, "other"])
        assert secret not in redactor.text(before).replace(REMOVED, "")
        assert secret not in redactor.document({"x": [before + secret]})["x"][0].replace(
            REMOVED, "\0"
        )
        assert REMOVED in redactor.text(before + secret + after)


def test_each_text_of_a_document_is_redacted_and_no_key() -> None:
    given = {"token": [1, None, "say hush-hush"], "more": ({"a": "password: b"},)}
    assert Redactor(["hush-hush"]).strings(given) == {
        "token": [1, None, f"say {REMOVED}"],
        "more": [{"a": f"password: {REMOVED}"}],
    }
