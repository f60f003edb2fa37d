"""Keys for the bucket of the tests (bucket_server.py): they look like those of AWS."""

from __future__ import annotations

KEYS = {
    "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI-K7MDENG-bPxRfiCYEXAMPLEKEY",
    "AWS_SESSION_TOKEN": "FwoGZXIvYXdzEBYaDEXAMPLETOKEN",
    "AWS_REGION": "us-east-1",
}
SECRETS = [value for name, value in KEYS.items() if name != "AWS_REGION"]
