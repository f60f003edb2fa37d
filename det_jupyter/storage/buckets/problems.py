"""Says what is wrong with a bucket, in sentences that have no credentials.

The answers of servers name keys, signatures and what was signed, and obstore's errors contain
them. So only the code and the status of an answer are read from an error; the sentence is ours.
"""

from __future__ import annotations

import re
from typing import Final, Literal, TypeAlias

from det_jupyter.errors import BucketProblem

Doing: TypeAlias = Literal["write", "read", "list", "delete"]

# Of an answer, or of an object of several that were deleted by one request.
_CODE = re.compile(r"<Code>\s*(\w+)\s*</Code>|\(code: ([A-Za-z]\w+)\)|\b(invalid_grant)\b")
_STATUS = re.compile(r"(?:\bstatus|\bstatus code|\(code): (\d{3})\b")
# Amazon's code; what Azure and Google say of requests and tokens from another time.
_CLOCK = re.compile(r"RequestTimeTooSkewed|Request date header too old|in a reasonable timeframe")
_KEYLESS = ("169.254.169.254", "169.254.170.2", "metadata.google.internal")  # of a role's keys
_NETWORK = "HTTP error"
_KEYS: Final = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or ~/.aws/credentials",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS, or `gcloud auth application-default login`",
    "azure": "AZURE_STORAGE_ACCOUNT_KEY",
}
_RIGHTS: Final = {
    "write": "s3:PutObject", "read": "s3:GetObject", "list": "s3:ListBucket",
    "delete": "s3:DeleteObject",
}  # fmt: skip
_NO_BUCKET = {"NoSuchBucket", "ContainerNotFound"}
_NO_KEYS = {
    "AuthenticationFailed", "ExpiredToken", "InvalidAccessKeyId", "InvalidAuthenticationInfo",
    "InvalidToken", "SignatureDoesNotMatch", "TokenRefreshRequired", "invalid_grant",
}  # fmt: skip
_OTHER_REGION = {"AuthorizationHeaderMalformed", "PermanentRedirect", "TemporaryRedirect"}
_LATER = {
    "InternalError", "OperationTimedOut", "RequestTimeout", "ServerBusy", "SlowDown",
    "NoSuchUpload",  # an end of an upload in parts was sent again, while the first was carried out
}  # fmt: skip


def explain(error: Exception, where: str, doing: Doing) -> BucketProblem:
    """Return the problem that an error of obstore means.

    Args:
        error: The error.
        where: The location.
        doing: What failed.
    """
    service = where.partition("://")[0].partition("+")[0]
    kind, sentence = _classify(error, service, doing)
    return BucketProblem(f"{where}{sentence}", kind)


def _classify(error: Exception, service: str, doing: Doing) -> tuple[str, str]:
    """Return the kind of the problem, and what follows the location in its sentence."""
    text, name = str(error), type(error).__name__
    code = next((found[found.lastindex or 0] for found in _CODE.finditer(text)), "")
    status = next((int(found[1]) for found in _STATUS.finditer(text)), 0)
    answer = code or (str(status) if status else "")
    cited = f" ({answer})" if answer else ""
    if any(address in text for address in _KEYLESS):
        return "refused", (
            f": no keys for it were found; set {_KEYS[service]}, where the master and its agents "
            "are started"
        )
    if code in _NO_BUCKET:
        return "absent", (
            ": there is no such bucket; create it, or correct its name in checkpoint_storage"
        )
    if _CLOCK.search(text):
        return "refused", (
            ": the clock of this computer differs from the server's by more than it allows; set "
            "it (`timedatectl set-ntp true`)"
        )
    if code in _OTHER_REGION:
        return "refused", f": the bucket is in another region{cited}; set AWS_REGION to its own"
    if code in _NO_KEYS or name == "UnauthenticatedError" or status == 401:
        return "refused", (
            f": its keys are not accepted{cited}; look at {_KEYS[service]} where the master and "
            "its agents are started"
        )
    if code == "AccessDenied" or name == "PermissionDeniedError" or status == 403:
        right = f", in a policy {_RIGHTS[doing]}" if service == "s3" else ""
        return "refused", (
            f": its keys do not allow to {doing} objects{cited}; give them that right{right}"
        )
    if code == "NotImplemented" or status == 501:
        return "refused", (
            f": its server lacks what is needed to {doing} objects{cited}; it has to take "
            "conditional writes (`If-None-Match: *`), as Amazon's and MinIO's do"
        )
    if status >= 500 or status == 429 or code in _LATER:
        return "away", f" answers {answer}"
    if name == "FileNotFoundError":
        return "absent", f": an object to {doing} is not there"
    if _NETWORK in text:
        return "away", (
            " does not answer; see whether its address is right, and reached from this computer"
        )
    return "other", f": to {doing} objects fails ({answer or name})"
