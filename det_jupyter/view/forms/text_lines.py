"""Lines of text that the static card and the plain text share."""

from __future__ import annotations

from det_jupyter.contract.values.reader import Reader
from det_jupyter.contract.values.text import clock, count, duration, number, percent, size
from det_jupyter.view.making.results import seconds_since
from det_jupyter.view.making.search_view import ranked
from det_jupyter.view.making.space import value_text
from det_jupyter.view.model.search_state import SearchState, TrialRow
from det_jupyter.view.model.status_looks import ENDED
from det_jupyter.view.model.trial_state import Checkpoints, Failure, TrialDetails
from det_jupyter.view.model.view_state import ViewState

METRIC_HEAD = ["metric", "last", "lowest", "highest"]
MAX_BEST = 10
MAX_KEPT = 500  # trials of a search in the static card


def summary(state: ViewState) -> str:
    """Return the line below the progress bar: steps or trials, elapsed and remaining time."""
    elapsed_s = state["held_s"] + seconds_since(state["held_since"], state["as_of"])
    parts = [*state["summary"], f"{duration(elapsed_s)} elapsed"]
    if state["eta_s"] is not None:
        parts.append(f"about {duration(state['eta_s'])} left")
    if state["status"] not in ENDED:
        parts.append(f"as of {clock(state['as_of'])}")
    return " · ".join(parts)


def trial_rows(
    search: SearchState, first: int = 0, last: int = MAX_BEST
) -> tuple[list[str], list[list[str]]]:
    """Return the header of a table of trials, best first, and its rows `first` to `last`."""
    has_rungs = bool(search["brackets"])
    head = ["trial", "state", *(["rung"] if has_rungs else []), search["metric"], "steps"]
    lines = [
        [
            str(row["id"]),
            row["status_word"].lower(),
            *([_rung(search, row)] if has_rungs else []),
            "-" if row["best"] is None else number(row["best"]),
            str(row["steps_completed"]),
            *map(value_text, search["axes"], row["values"]),
        ]
        for row in ranked(search)[first:last]
    ]
    return [*head, *(axis["name"] for axis in search["axes"])], lines


def left_out_note(search: SearchState, most: int = MAX_BEST) -> str:
    """Return a note if tables leave out trials; else ""."""
    num_trials = len(search["rows"])
    return f"the best {most} of {num_trials} trials" if num_trials > most else ""


def _rung(search: SearchState, row: TrialRow) -> str:
    if row["bracket"] is None or not row["rungs"]:
        return "-"
    rungs = search["brackets"][row["bracket"]]["rungs"]
    return rungs[min(len(row["rungs"]), len(rungs)) - 1]["label"]


def remark_lines(search: SearchState) -> list[str]:
    texts = [remark["text"] for remark in search["remarks"]]
    if more := search["num_more_remarks"]:
        texts.append(count(more, "more remark"))
    return texts


def trial_title(trial: TrialDetails) -> str:
    """Return one line with a trial's state, ranks, start time and restarts."""
    parts = [f"trial {trial['id']}: {trial['status_word'].lower()}"]
    if trial["ranks"]:
        backend = f" ({trial['backend']})" if trial["backend"] else ""
        parts.append(count(len(trial["ranks"]), "rank") + backend)
    if trial["first_step_s"] is not None:
        parts.append(f"first step after {trial['first_step_s']:.2f} s")
    if trial["restarts"]:
        parts.append(f"restarted {count(trial['restarts'], 'time')}")
    if trial["num_recoveries"]:
        parts.append(f"recovered {count(trial['num_recoveries'], 'time')}")
    return " · ".join(parts)


def slots_line(state: ViewState) -> str:
    """Return the summary of all slots if a trial waits; else ""."""
    cluster = state["cluster"]
    return cluster["summary"] if cluster is not None and cluster["is_waiting"] else ""


def failure_title(failure: Failure) -> str:
    """Return the rank and exit code of a failure, and whether the trial continues."""
    rank = "" if failure["rank"] is None else f" on rank {failure['rank']}"
    code = "" if failure["exit_code"] is None else f" (exit code {failure['exit_code']})"
    again = "; the trial goes on in another run" if failure["again"] else ""
    return f"failed{rank}{code}{again}"


def logs_line(experiment_id: int, trial: TrialDetails, reader: Reader) -> str:
    """Return the command that shows the output of a failed trial's rank."""
    failure = trial["failure"]
    rank = "" if failure is None or failure["rank"] is None else f" --rank {failure['rank']}"
    return f"{reader.experiment} logs {experiment_id} --trial {trial['id']}{rank}"


def checkpoints_line(checkpoints: Checkpoints) -> str:
    """Return the number of checkpoints and the best metric so far; "" if there is neither."""
    parts = []
    if checkpoints["count"]:
        saved = f"{count(checkpoints['count'], 'checkpoint')}, {size(checkpoints['size_bytes'])}"
        parts.append(f"{saved}, latest at step {checkpoints['latest_step']}")
    if checkpoints["best_metric"] is not None:
        best = f"best {checkpoints['metric']} {number(checkpoints['best_metric'])}"
        step = checkpoints["best_step"]
        parts.append(best if step is None else f"{best} (checkpoint at step {step})")
    return " · ".join(parts)


def metric_rows(state: ViewState) -> list[list[str]]:
    """Return the row of each curve that is drawn, for a table with the header `METRIC_HEAD`."""
    return [
        [
            f"{chart['title']} ({series['label']})",
            *map(number, (series["last"], series["lowest"], series["highest"])),
        ]
        for chart in state["charts"]
        for series in chart["series"]
        if not series["is_faint"]
    ]


def left_out(state: ViewState) -> str:
    """Return the names of metrics without a chart; "" if there are none."""
    names = state["more_metrics"]
    shown = ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
    return f"{count(len(names), 'more metric')} not shown: {shown}" if names else ""


def importance_line(search: SearchState) -> str:
    """Return the importance of the hyperparameters, or why it is unknown; "" if not fetched."""
    found = search["importance"]
    if found is None:
        return ""
    shares = ", ".join(f"{one['name']} {percent(one['share'])}" for one in found["shares"])
    parts = "; ".join(filter(None, [shares, found["sentence"]]))
    return f"Importance of hyperparameters: {parts}"
