"""What `experiment` is after a cell was refused: using it says why, instead of an older handle."""

from __future__ import annotations

from typing import Any, NoReturn

from det_jupyter.errors import NotFound


class RefusedExperiment:
    """Stands where the handle would be.

    Args:
        reason: Why there is none.
    """

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # front ends look for _repr_html_ and the like
            raise AttributeError(name)
        self._raise()

    def _raise(self) -> NoReturn:
        raise NotFound(
            f"there is no experiment, because the cell that was to submit it was refused: "
            f"{self._reason}"
        )

    def __repr__(self) -> str:
        return f"No experiment: the cell that was to submit it was refused: {self._reason}"
