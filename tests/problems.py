"""The sentences that a reader gets for the problems of an error."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from det_jupyter.errors import Problem


def said(problems: Iterable[Problem | str]) -> list[str]:
    """Return the sentence of each problem."""
    return [str(problem) for problem in problems]


def sentences_of(refusal: Mapping[str, Any]) -> list[str]:
    """Return the sentence of each problem of a refusal, as received by HTTP."""
    return [str(Problem(**problem)) for problem in refusal["problems"]]


def refusal(error: str, *sentences: str) -> dict[str, Any]:
    """Return the refusal that HTTP delivers for an error with these problems."""
    return {"error": error, "problems": [{"path": "", "text": text} for text in sentences]}
