"""Authorization and error answers of all endpoints, and the small endpoints themselves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from functools import wraps
from http.client import responses
from typing import Any

from jupyter_core.utils import ensure_async
from jupyter_server.base.handlers import APIHandler, JupyterHandler
from tornado import web

from det_jupyter._version import __version__
from det_jupyter.config.first_configuration import draft
from det_jupyter.contract.messages.pages import (
    PAGE_PROTOCOL,
    FirstConfiguration,
    Handshake,
    MasterState,
)
from det_jupyter.contract.trial.source_needs import needs_of
from det_jupyter.contract.values.text import printable
from det_jupyter.errors import DetError, Problem, http_status
from det_jupyter.front.jupyter_server.master_lookup import MasterLookup
from det_jupyter.front.jupyter_server.routes import ACTIONS, PREFIX, RESOURCES

_MOST_SOURCE = 2_000_000  # characters of code cells, parsed for a first configuration
Method = Callable[..., Awaitable[None] | None]


class RefusingHandler(JupyterHandler):
    """Answers errors as the master does: {error, problems}."""

    def refuse(self, error: DetError) -> None:
        """Finish with the status and message of an error."""
        status = http_status(error)
        self._finish_refused(status, type(error).__name__, str(error))

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Finish with the status and message of an unhandled exception; called by tornado."""
        _, error, _ = kwargs.get("exc_info", (None, None, None))
        name = "NotFound" if status_code == 404 else "DetError"
        what = f"{self.request.method} {self.request.path}"
        if status_code == 403 and not self.current_user:
            message = "you are not logged in to the Jupyter server: reload the page, and log in"
        elif isinstance(error, web.HTTPError):
            reason = error.reason or responses.get(status_code, "")
            # Without arguments, tornado has doubled its percent signs.
            message = (error.log_message or "") % error.args or f"{what}: {reason}"
        else:
            kind = type(error).__name__
            message = f"{what} failed ({kind}); the log of the Jupyter server has more"
        self._finish_refused(status_code, name, message)

    def _finish_refused(self, status: int, name: str, message: str) -> None:
        text = printable(message)  # the message quotes the request
        problems = [asdict(Problem("", text))]
        self.set_status(status)
        self.set_header("Content-Type", "application/json")
        # Other extensions show the `message` of any error of a Jupyter server.
        self.finish(json.dumps({"error": name, "problems": problems, "message": text}))


class Endpoint(RefusingHandler, APIHandler):
    """An endpoint that takes and returns JSON."""


def authenticated(method: Method) -> Method:
    """Decorate a handler's method: require a login, and answer a DetError with its status."""

    @web.authenticated
    @wraps(method)
    async def inner(self: RefusingHandler, *args: Any) -> None:
        try:
            await ensure_async(method(self, *args))
        except DetError as error:
            self.refuse(error)

    return inner


async def is_allowed(handler: JupyterHandler, action: str, resource: str) -> bool:
    """Return whether the authorizer allows a request's user this action."""
    user = handler.current_user
    return bool(
        user
        and await ensure_async(
            handler.authorizer.is_authorized(handler, user, action, PREFIX + resource)
        )
    )


async def require(handler: JupyterHandler, action: str, resource: str) -> None:
    """Raise HTTPError 403 unless the authorizer allows a request's user this action.

    Jupyter's `@authorized` cannot be used: it takes the resource of the first request for all
    later ones.
    """
    if not await is_allowed(handler, action, resource):
        problem = f"you are not allowed to {action} {PREFIX}{resource} on this Jupyter server"
        raise web.HTTPError(403, problem)


async def allowed_actions(handler: JupyterHandler) -> dict[str, list[str]]:
    """Return the actions that a request's user may take, by resource."""
    return {
        resource: [each for each in ACTIONS if await is_allowed(handler, each, resource)]
        for resource in RESOURCES
    }


class Info(Endpoint):
    """`GET info`: the handshake of a page, for all logged-in users."""

    def initialize(self, master: MasterLookup) -> None:
        self._master = master

    @authenticated
    async def get(self) -> None:
        """Answer with versions, the state of the master, and the user's permissions."""
        may, state = await asyncio.gather(allowed_actions(self), self._master.state())
        if not (may["experiments"] or may["cluster"]):
            state = MasterState(state=state.state)
        answer = Handshake(
            version=__version__,
            protocol=PAGE_PROTOCOL,
            may_read="read" in may["experiments"],
            may_write="write" in may["experiments"],
            may=may,
            master=state,
        )
        self.finish(json.dumps(answer.model_dump()))


class StartCell(Endpoint):
    """`POST cell`: writes a first configuration for a class or function defined in cells."""

    @authenticated
    async def post(self) -> None:
        """Answer {configuration}, from {configuration, entrypoint, sources, given}.

        `given` is the configuration of the template that the cell names, if any.
        """
        await require(self, "read", "experiments")
        body = self.get_json_body()
        body = body if isinstance(body, dict) else {}
        text, entrypoint = body.get("configuration", ""), body.get("entrypoint", "")
        sources = body.get("sources", [])
        sources = sources if isinstance(sources, list) else [None]
        given = body.get("given") or {}
        if (
            not (isinstance(text, str) and isinstance(entrypoint, str) and isinstance(given, dict))
            or not all(isinstance(source, str) for source in sources)
        ):  # fmt: skip
            raise web.HTTPError(400, "expected configuration, entrypoint and sources, as texts")
        is_short = sum(map(len, sources)) + len(text) <= _MOST_SOURCE
        written = await asyncio.get_running_loop().run_in_executor(
            None,
            lambda: draft(
                text, entrypoint, needs_of(sources if is_short else [], entrypoint), given
            ),
        )
        self.finish(json.dumps(FirstConfiguration(configuration=written).model_dump()))


class StartMaster(Endpoint):
    """`POST master/start`: starts the master."""

    auth_resource = f"{PREFIX}cluster"

    def initialize(self, master: MasterLookup) -> None:
        self._master = master

    @authenticated
    async def post(self) -> None:
        await require(self, "execute", "cluster")
        await self._master.start()
        self.finish(json.dumps((await self._master.state()).model_dump()))
