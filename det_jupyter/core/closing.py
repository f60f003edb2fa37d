"""Parts of a context, which may be used until its `with` block ends."""

from __future__ import annotations


class Part:
    """A part of a context: open from the beginning, and again in each further `with` block."""

    is_open = True

    def check_open(self, call: str) -> None:
        """Refuse a call after the end of the context.

        Raises:
            RuntimeError: The context is closed.
        """
        if not self.is_open:
            raise RuntimeError(
                f"{call}: this context is closed, as its `with core.init()` block has ended; "
                "move the call into the block"
            )
