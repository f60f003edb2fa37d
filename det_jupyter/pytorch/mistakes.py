"""What a method of the trial returned that cannot be used: told by its message, never retried."""

from __future__ import annotations

import inspect
from types import CodeType

from det_jupyter.errors import ConfigError


class TrialMistake(ConfigError):
    """A method of the trial returns what it must not.

    No frame of the method is left when it is found, so the method is named instead.

    Args:
        method: Name of the trial's method.
        problem: What it returned, what is expected; begins with the method's name.
    """

    def __init__(self, method: str, problem: str) -> None:
        self.method = method
        super().__init__([problem])

    def code_in(self, trial: object) -> CodeType | None:
        """Return the code of the method, behind its decorators."""
        method = getattr(type(trial), self.method, None)
        code = getattr(inspect.unwrap(method), "__code__", None) if callable(method) else None
        return code if isinstance(code, CodeType) else None
