"""What a page may say to the feeder, where the authorizer lets its user see only a part.

The feeder refuses changes by itself; here, what a user may not even see is not followed. Users who
may do everything, which is usual, pass without their frames being read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from det_jupyter.server.routes import ACTIONS, PREFIX

_TOPICS = {"cluster": "cluster", "usage": "cluster"}  # others: experiments
_QUESTIONS = {"logs": "logs", "stacks": "kernels"}  # and the series of an agent: cluster


class Gate:
    """Refuses frames.

    Args:
        may: The actions that the user may take, by resource.
    """

    def __init__(self, may: Mapping[str, Sequence[str]]) -> None:
        self._may = may
        self._is_open = all(len(actions) == len(ACTIONS) for actions in may.values())

    @property
    def may_write(self) -> bool:
        """Whether the user may change experiments."""
        return "write" in self._may["experiments"]

    def refusal(self, message: str | bytes) -> str:
        """Return the frame to answer with instead of passing this one on; "" if it may pass."""
        if self._is_open:
            return ""
        try:
            frame = json.loads(message)
            resource, op = _resource_of(frame), frame["op"]
        except (ValueError, KeyError, TypeError, RecursionError):
            return ""  # the feeder says what is wrong with it
        if "read" in self._may[resource]:
            return ""
        problem = f"you are not allowed to read {PREFIX}{resource} on this Jupyter server"
        answer = {"op": "answer" if op == "ask" else "error", "id": frame.get("id")}
        return json.dumps({**answer, "error": problem})


def _resource_of(frame: dict[str, object]) -> str:
    if frame["op"] == "follow":
        return _TOPICS.get(str(frame.get("topic")), "experiments")
    question = frame.get("question")
    if not isinstance(question, dict):
        return "experiments"
    if question.get("type") == "series" and question.get("agent_id") is not None:
        return "cluster"
    return _QUESTIONS.get(str(question.get("type")), "experiments")
