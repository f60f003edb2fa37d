"""The verb that lists experiments; ids of experiments in lines and in errors."""

from __future__ import annotations

import json
from collections.abc import Sequence

from det_jupyter.client import Client
from det_jupyter.client.handles.queries import make_query, to_rows
from det_jupyter.client.tables import to_csv
from det_jupyter.contract.messages import ExperimentQuery, ExperimentRow, ExperimentRows
from det_jupyter.contract.messages.status import api_name
from det_jupyter.contract.values.reader import Reader
from det_jupyter.contract.values.text import date, shortened
from det_jupyter.errors import NotFound
from det_jupyter.front.verbs.cluster_tables import user_name
from det_jupyter.front.verbs.grammar import Call, usage_errors
from det_jupyter.front.verbs.listings import (
    Cell,
    Listing,
    form_of,
    page_of,
    render,
    to_yaml,
)

_HEADER = ("id", "name", "state", "progress", "best", "slots", "started", "labels", "notebook")
_COLUMNS = ("ID", "Owner", "Name", "Parent ID", "State", "Progress", "Started", "Ended",
            "Resource Pool", "Best Metric", "Labels", "Archived")  # fmt: skip
_LONGEST_NAME = 60
_NEWEST = 20  # experiments that are listed, unless a line requests more
_MOST_NAMED = 5  # most experiments that are named by their numbers


def list_experiments(call: Call) -> str:
    """Return the experiments that match the options, as a table, newest first, or as data."""
    given = call.options
    form = form_of(given)
    limit = None if given.all or form or given.pages == "all" else _NEWEST
    limit = limit if (page := page_of(given)) is None else page
    is_sorted = given.sort_by is not None or given.reverse  # the master cannot sort so
    with usage_errors(given):
        query = make_query(
            " ".join(given.text),
            name=given.named,
            label=given.label,
            notebook=given.notebook,
            state=[state for states in given.state for state in states.split(",")],
            since=given.since,
            until=given.until,
            archived=given.all,
            sort=given.sort,
            limit=None if limit is None or is_sorted else limit + given.offset,
        )
    found = call.client.find(query)
    listing = Listing(header=_COLUMNS, rows=[_cells(row, is_data=True) for row in found.rows])
    if call.is_shell and form:
        return render(listing, given)
    rows = [found.rows[index] for index in listing.row_indices(given)][:limit]
    num_more = found.num_more + max(0, len(found.rows) - given.offset - len(rows))
    found = found.model_copy(update={"rows": rows, "num_more": num_more})
    if form:
        return _as_data(found.rows, form)
    unfiltered = ExperimentQuery(archived=query.archived, sort=query.sort, limit=query.limit)
    is_filtered = query != unfiltered or given.offset > 0
    command = f"{call.reader.experiment} list"
    hint = "" if given.all else f"; `{command} --limit 100` lists more, `{command} -a` all"
    table = found_text(found, hint=hint, is_filtered=is_filtered, in_columns=call.is_shell)
    return "\n".join([table, *(f"Note: {disk.sentence(call.reader)}" for disk in found.disks)])


def _as_data(rows: Sequence[ExperimentRow], form: str) -> str:
    """Return experiments with their hyperparameters as CSV, JSON, YAML or ids."""
    match form:
        case "csv":
            return to_csv(to_rows(rows).to_columns()).rstrip("\n")
        case "quiet":
            return "\n".join(str(row.id) for row in rows)
        case "json":
            return json.dumps(to_rows(rows), indent=2, ensure_ascii=False)
    return to_yaml(to_rows(rows)).rstrip("\n")


def found_text(
    found: ExperimentRows,
    *,
    most: int | None = None,
    hint: str = "",
    is_filtered: bool = False,
    in_columns: bool = False,
) -> str:
    """Return found experiments as a table, and a line with the number of others.

    Args:
        hint: End of that line: the command that lists the others.
        is_filtered: Whether the query may have excluded experiments.
        in_columns: With the columns of Determined's command.
    """
    front = found.rows[:most]
    notes = []
    if num_more := found.num_more + len(found.rows) - len(front):
        notes.append(f"{num_more:,} more")
    if found.num_archived:
        notes.append(f"{found.num_archived:,} archived")
    note = f"Not listed: {', '.join(notes)}{hint}." if notes else ""
    nothing = "No experiment matches the options." if is_filtered else "No experiments yet."
    header = _COLUMNS[:-1] if in_columns else _HEADER
    rows = [_cells(row)[:-1] if in_columns else _row(row) for row in front]
    table = Listing(header=header, rows=rows).text(None)
    return "\n".join(text for text in (table or ("" if notes else nothing), note) if text)


def _row(row: ExperimentRow) -> tuple[str, ...]:
    return (
        str(row.id),
        shortened(row.name, _LONGEST_NAME),
        _state(row),
        f"{row.progress:.0%}",
        "-" if row.best_metric is None else f"{row.metric} {row.best_metric:.4g}",
        str(row.slots_per_trial),
        date(row.created_at),
        ", ".join(row.labels) or "-",
        (row.notebook or "-").rsplit("/", 1)[-1],
    )


def _state(row: ExperimentRow) -> str:
    return f"{row.status_word} (archived)" if row.is_archived else row.status_word


def _cells(row: ExperimentRow, *, is_data: bool = False) -> tuple[Cell, ...]:
    best = row.best_metric
    return (
        row.id,
        user_name(),
        row.name if is_data else shortened(row.name, _LONGEST_NAME),
        row.parent_id,
        api_name(row.status) if is_data else _state(row),
        round(row.progress, 4) if is_data else f"{row.progress:.0%}",
        date(row.created_at),
        None if row.ended_at is None else date(row.ended_at),
        row.pool or None,
        best if is_data or best is None else f"{row.metric} {best:.4g}",
        ", ".join(row.labels) or None,
        row.is_archived,
    )


def numbers_of(call: Call) -> list[int]:
    """Return the ids of experiments in a line, each once; for a range, the existing ones.

    Raises:
        NotFound: The line has only ranges, without an existing experiment.
    """
    ranges: list[range] = [each for word in call.options.ids for each in word]
    spans = [each for each in ranges if len(each) > 1]
    known = known_numbers(call.client) if spans else []
    numbers = [
        number
        for each in ranges
        for number in ([i for i in known if i in each] if len(each) > 1 else each)
    ]
    if not numbers:
        spanned = ", ".join(f"{each[0]}-{each[-1]}" for each in spans)
        raise NotFound(f"there is no experiment of {spanned}; {_existing(call.client)}")
    return list(dict.fromkeys(numbers))


def known_numbers(client: Client) -> list[int]:
    """Return the ids of all experiments, oldest first."""
    query = ExperimentQuery(archived=True, sort="oldest")
    return [row.id for row in client.find(query).rows]


def with_existing(error: NotFound, client: Client, reader: Reader) -> NotFound:
    """Return the error about an unknown id with a hint at the existing ids."""
    match error.what:
        case "trial":
            experiment = reader.experiment
            hint = (
                f"`{reader.det} task list` shows those that run or wait, "
                f"`{experiment} trials ID` all of an experiment"
            )
        case "experiment":
            hint = _existing(client)
        case _:
            return error
    return NotFound(f"there is no {error.what} {error.number}; {hint}")


def _existing(client: Client) -> str:
    """Return the newest ids as text, for an error."""
    found = client.find(ExperimentQuery(archived=True, limit=_MOST_NAMED))
    numbers = ", ".join(str(row.id) for row in reversed(found.rows))
    front = "the newest are" if found.num_more else "there are"
    return f"{front}: {numbers}" if numbers else "there are none yet"
