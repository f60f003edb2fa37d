"""Converts errors of MLflow's library to Unreachable or TrackerRefused."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import mlflow.exceptions
import requests

from det_jupyter.contract.values.addresses import without_secrets
from det_jupyter.trackers.service import TrackerRefused, Unreachable

_NO_ENDPOINT = "ENDPOINT_NOT_FOUND"  # also when a web server answers with a page
_OUR_MISTAKE = "INVALID_PARAMETER_VALUE"  # found by the library, without a request
_A_PAGE = "it answers with a page, or otherwise than MLflow does"
_WITHHELD = (
    "asks for credentials, and none are sent: those of your environment go only to the address in "
    "MLFLOW_TRACKING_URI and to addresses in trackers.yaml, and over http only to this computer; "
    "name it there"
)
_MISSING = (
    "asks for credentials; set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or "
    "MLFLOW_TRACKING_TOKEN, where the experiment is submitted or the master is started"
)


class Problems:
    """Turns errors of MLflow's library into ours, without secrets.

    Args:
        shown_as: MLflow's address, without secrets.
        is_server: Whether it is the address of a server.
        secrets: Texts that no message may contain.
        gets_credentials: Whether MLflow gets the user's credentials.
        has_credentials: Whether there are credentials.
        fails_at_all: Returns whether MLflow also fails at a request that is not about our
            experiments; called after an error.
    """

    def __init__(
        self,
        *,
        shown_as: str,
        is_server: bool,
        secrets: Sequence[str],
        gets_credentials: bool,
        has_credentials: bool,
        fails_at_all: Callable[[], bool],
    ) -> None:
        self._shown_as = shown_as
        self._is_server = is_server
        self._secrets = secrets
        self._wants = "refuses the credentials" if has_credentials else _MISSING
        if not (gets_credentials or has_credentials):
            self._wants = _WITHHELD
        self._fails_at_all = fails_at_all

    def of(self, error: Exception) -> Unreachable | TrackerRefused:
        """Return the exception to raise for an error."""
        cause = find_request_error(error)
        if isinstance(cause, requests.Timeout):
            return Unreachable(f"{self._shown_as} does not answer")
        if isinstance(cause, requests.exceptions.RetryError):
            return self._failure("it answers with errors of the server")
        if cause is not None or not isinstance(error, mlflow.exceptions.MlflowException):
            return Unreachable(f"{self._shown_as} cannot be reached")
        status = error.get_http_status_code()
        is_page = self._is_server and not isinstance(error, mlflow.exceptions.RestException)
        is_page = is_page and error.error_code != _OUR_MISTAKE
        said = _A_PAGE if is_page else without_secrets(str(error), self._secrets)
        if status in (401, 403):
            more = "" if is_page else f": {said}"
            return Unreachable(f"{self._shown_as} {self._wants}{more}")
        if error.error_code == _NO_ENDPOINT:
            return Unreachable(
                f"{self._shown_as} does not answer as MLflow does; check the path of its address"
            )
        if status in (408, 425, 429):
            return Unreachable(f"{self._shown_as} has failed: {said}")
        if status >= 500:
            return self._failure(said)
        return TrackerRefused(f"{self._shown_as} refuses: {said}")

    def _failure(self, message: str) -> Unreachable | TrackerRefused:
        kind = Unreachable if self._fails_at_all() else TrackerRefused
        return kind(f"{self._shown_as} has failed: {message}")


def find_request_error(error: BaseException) -> requests.RequestException | None:
    """Return the failed request that has caused an error, None if none has."""
    seen: BaseException | None = error
    while seen is not None and not isinstance(seen, requests.RequestException):
        seen = seen.__cause__ or seen.__context__
    return seen
