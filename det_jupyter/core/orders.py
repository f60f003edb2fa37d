"""Orders to this run: changes and profiles that a user asks for while it trains."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from det_jupyter.contract.messages import Order, PassOrders
from det_jupyter.contract.run.control_page import ControlPage
from det_jupyter.core.distributed import DistributedContext

logger = logging.getLogger(__name__)


class OrdersContext:
    """The orders to this run.

    Args:
        planned: Those that it begins with, on every rank.
        page: The chief's control page; None on other ranks and outside of experiments.
        file: Where the agent writes orders.
    """

    def __init__(
        self,
        planned: Sequence[Order],
        *,
        page: ControlPage | None,
        file: Path | None,
        distributed: DistributedContext,
    ) -> None:
        self.planned = planned
        self._page = page
        self._file = file
        self._distributed = distributed
        self._last_id = max((order.id for order in planned), default=0)

    def are_waiting(self) -> bool:
        """Return whether there are orders to take, on the chief; other ranks return False."""
        return self._page is not None and self._page.last_order() > self._last_id

    def take(self) -> list[Order]:
        """Return the orders since the last call, oldest first. Collective."""
        text = self._distributed.broadcast(self._read() if self._page is not None else "")
        if not text:
            return []
        orders = PassOrders.model_validate_json(text).orders
        new = sorted((o for o in orders if o.id > self._last_id), key=lambda o: o.id)
        self._last_id = max((order.id for order in new), default=self._last_id)
        return new

    def _read(self) -> str:
        assert self._page is not None
        assert self._file is not None
        last_id = self._page.last_order()
        try:
            return self._file.read_text(encoding="utf-8")
        except OSError as error:  # user code may have removed the folder
            logger.warning("%s cannot be read: %s", self._file, error)
            self._last_id = last_id
            return ""
