"""Selects what to print while an experiment is followed: new reasons for waiting, and hangs."""

from __future__ import annotations

from det_jupyter.contract.values.text import experiment_title, one_line
from det_jupyter.view.model.slots_and_queue import Wait
from det_jupyter.view.model.status_looks import ENDED
from det_jupyter.view.model.trial_state import HungTrial
from det_jupyter.view.model.view_state import ViewState


class WaitingNews:
    """Selects reasons for waiting to print, each of them once."""

    def __init__(self) -> None:
        self._printed = ""  # key of the reason that was printed last

    def wait(self, state: ViewState) -> Wait | None:
        """Return why the first queued trial waits; None if a trial runs or the reason is known."""
        wait = first_wait(state)
        before, self._printed = self._printed, "" if wait is None else wait["key"]
        return wait if self._printed not in ("", before) else None

    def line(self, state: ViewState) -> str:
        """Return a line with the reason that a trial waits, if that is new; else ""."""
        wait = self.wait(state)
        if wait is None:
            return ""
        return f"{_title(state)}: trial {wait['trial_id']} waits: {plain_sentence(wait)}"


class HangNews:
    """Selects lines about hangs to print, each of them once."""

    def __init__(self) -> None:
        self._hanging: dict[int, HungTrial] = {}  # by trial

    def lines(self, state: ViewState) -> list[str]:
        """Return a line for each trial that has begun or ceased to hang since the last call."""
        hanging = {hang["trial_id"]: hang for hang in state["hangs"]}
        before, self._hanging = self._hanging, hanging
        trials = state["search"]["rows"] if state["search"] else state["trials"]
        running = {trial["id"] for trial in trials if trial["status"] not in ENDED}
        new = [
            f"{_title(state)}: trial {id} hangs: {one_line(hang['sentence'])}"
            for id, hang in hanging.items()
            if id not in before or before[id]["since"] != hang["since"]
        ]
        gone = [id for id in before if id not in hanging and id in running]
        return [*new, *(f"{_title(state)}: trial {id} hangs no longer" for id in gone)]


def first_wait(state: ViewState) -> Wait | None:
    """Return why a search or the only trial waits, or what delays the ranks that have to leave."""
    if state["search"] is not None:
        return state["search"]["wait"]
    return next((trial["wait"] for trial in state["trials"]), None)


def plain_sentence(wait: Wait) -> str:
    """Return why a trial waits, without the name of the trial at its beginning."""
    return one_line(wait["sentence"]).removeprefix(f"trial {wait['trial_id']}: ")


def _title(state: ViewState) -> str:
    return one_line(experiment_title(state["id"], state["name"]))
