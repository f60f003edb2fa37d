"""`python -m det_jupyter.trackers`: sends experiments to one tracker, started by the master.

stdin     one line of JSON: a TrackerOrder; the program exits when stdin is closed
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
import traceback
from pathlib import Path

from det_jupyter.client.client import Client
from det_jupyter.config.tracker_section import MLFLOW_CREDENTIALS, OF_USER, Tracker, open_address
from det_jupyter.connection import Session, find_master
from det_jupyter.contract.messages import TrackerOrder
from det_jupyter.errors import MasterUnreachable, NotFound
from det_jupyter.trackers.resolving import refuse_reserved
from det_jupyter.trackers.service import MasterFeed, Sender, TrackerRefused, Unreachable

logger = logging.getLogger("det_jupyter.trackers")

_PERIOD_S = 2.0
_IDLE_S = 30.0


def main() -> int:
    """Send until there has been nothing to send for a while, or standard input is closed."""
    order = TrackerOrder.model_validate_json(sys.stdin.readline())
    threading.Thread(target=_end_with_input, daemon=True).start()
    _keep_log()
    if (info := find_master()) is None:
        return 0
    take_credentials(order)
    if not order.is_named:
        refuse_reserved()
    source = MasterFeed(Client(Session(info, is_background=True)), info.host)
    try:
        send_all(_sender_of(order, source), source, order.group)
    except (MasterUnreachable, NotFound):  # the master has ended, or has replaced this sender
        return 0
    except Exception as error:  # its text may contain a secret
        places = "".join(traceback.format_tb(error.__traceback__))
        logger.error("%s\n%s", type(error).__name__, places)
        return 1
    return 0


def take_credentials(order: TrackerOrder) -> None:
    """Set the order's credentials as those that libraries find.

    If the user has not named the tracker's address, the libraries find no others: the master's
    variables with credentials, and the home folder with MLflow's files and .netrc, are hidden.
    """
    replaced = MLFLOW_CREDENTIALS if order.credentials else ()
    for name in replaced if order.gets_credentials else OF_USER:
        os.environ.pop(name, None)
    os.environ.update(order.credentials)
    if not order.gets_credentials:
        os.environ["HOME"] = os.devnull


def _keep_log() -> None:
    """Write the log of this program to standard error, and drop all output of libraries.

    Libraries print addresses, which may contain secrets.
    """
    handler = logging.StreamHandler(os.fdopen(os.dup(sys.stderr.fileno()), "w"))
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s: %(message)s"))
    logger.addHandler(handler)
    logger.propagate = False
    nothing = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(nothing, stream.fileno())


def _end_with_input() -> None:
    sys.stdin.read()
    os._exit(0)


def _sender_of(order: TrackerOrder, source: MasterFeed) -> Sender:
    tracker = Tracker.model_validate(order.tracker)
    if tracker.type == "wandb":
        from det_jupyter.trackers.wandb_sender import WandbSender

        return WandbSender(
            folder=Path(order.folder),
            project=tracker.group,
            entity=tracker.entity,
            source=source,
        )
    from det_jupyter.trackers.mlflow_sender import MlflowSender

    address = order.tracker["tracking_uri"]
    return MlflowSender(
        tracking_uri=address,
        shown_as=open_address(address),
        experiment=tracker.group,
        source=source,
        secrets=list(order.credentials.values()),
        gets_credentials=order.gets_credentials,
    )


def send_all(sender: Sender, source: MasterFeed, group: str) -> None:
    """Send all work of a group, until the master has had none for a while."""
    idle_since = time.monotonic()
    while time.monotonic() < idle_since + _IDLE_S:
        works = source.work(group)
        for work in works:
            try:
                sender.send(work)
            except TrackerRefused as refused:
                source.report(work, str(refused))
            except Unreachable as problem:
                source.report(work, str(problem), is_unreachable=True)
                return
            except MasterUnreachable:
                raise
            except NotFound as error:  # if the experiment was deleted, so was its row
                source.report(work, str(error))
            except Exception as error:  # of the library: one experiment must not block the others
                places = "".join(traceback.format_tb(error.__traceback__))
                logger.error("%s\n%s", type(error).__name__, places)
                source.report(work, f"it could not be sent ({type(error).__name__})")
        if works:
            idle_since = time.monotonic()
        time.sleep(_PERIOD_S)


if __name__ == "__main__":
    sys.exit(main())
