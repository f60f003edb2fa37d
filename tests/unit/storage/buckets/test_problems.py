"""What the answers of Azure and Google say. For those of S3 see integration/test_buckets.py."""

from __future__ import annotations

import pytest

from det_jupyter.storage.buckets.problems import Doing, explain

AZURE, GOOGLE = "azure://acme.blob.core.windows.net/models", "gs://models"


@pytest.mark.parametrize(
    ("text", "where", "doing", "expected"),
    [
        ("Bulk delete request failed for key one/a: This request is not authorized to perform "
         "this operation using this permission. (code: 403)", AZURE, "delete",
         "its keys do not allow to delete objects (403); give them that right"),
        ("status code: 403 Forbidden: <Error><Code>AuthenticationFailed</Code>"
         "<AuthenticationErrorDetail>Request date header too old: 'Mon, 30 Nov 2026 02:00:00 GMT'"
         "</AuthenticationErrorDetail></Error>", AZURE, "write",
         "the clock of this computer differs from the server's by more than it allows; set it "
         "(`timedatectl set-ntp true`)"),
        ("status code: 403 Forbidden: <Error><Code>AuthenticationFailed</Code></Error>", AZURE,
         "write", "its keys are not accepted (AuthenticationFailed); look at "
         "AZURE_STORAGE_ACCOUNT_KEY where the master and its agents are started"),
        ('status code: 400 Bad Request: {"error": "invalid_grant", "error_description": "Invalid '
         'JWT: Token must be a short-lived token (60 minutes) and in a reasonable timeframe."}',
         GOOGLE, "write",
         "the clock of this computer differs from the server's by more than it allows; set it "
         "(`timedatectl set-ntp true`)"),
        ('status code: 400 Bad Request: {"error": "invalid_grant"}', GOOGLE, "write",
         "its keys are not accepted (invalid_grant); look at GOOGLE_APPLICATION_CREDENTIALS, or "
         "`gcloud auth application-default login` where the master and its agents are started"),
    ],
)  # fmt: skip
def test_what_is_refused_is_said(text: str, where: str, doing: Doing, expected: str) -> None:
    problem = explain(Exception(text), where, doing)
    assert (problem.kind, str(problem)) == ("refused", f"{where}: {expected}")


def test_a_code_of_the_operating_system_is_no_answer() -> None:
    problem = explain(Exception("Os { code: 104, kind: Reset }"), GOOGLE, "read")
    assert str(problem) == f"{GOOGLE}: to read objects fails (Exception)"
