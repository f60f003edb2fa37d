"""Queries for experiments made from a user's values, and their results as a table."""

from __future__ import annotations

import time
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from det_jupyter.client.client import Client
from det_jupyter.client.requests import When, make_request, to_moment
from det_jupyter.client.tables import Row, Rows
from det_jupyter.contract.messages import ExperimentQuery, ExperimentRow
from det_jupyter.contract.messages.status import STATUS_WORDS, api_name
from det_jupyter.contract.values.nested import flattened
from det_jupyter.contract.values.reader import Reader
from det_jupyter.contract.values.text import date as date_text
from det_jupyter.contract.values.text import listed
from det_jupyter.errors import Conflict, NotFound

Words = str | Iterable[str] | None

_MOST_LISTED = 10  # experiments of one name


def make_query(
    text: str = "",
    *,
    label: Words = None,
    state: Words = None,
    since: When = None,
    until: When = None,
    **others: Any,
) -> ExperimentQuery:
    """Return the query; `others` are fields of ExperimentQuery.

    Raises:
        ConfigError: A value is wrong; one line for each.
    """
    now = time.time()
    return make_request(
        ExperimentQuery,
        text=text,
        label=_listed(label),
        state=_listed(state),
        since=to_moment("since", since, now),
        until=to_moment("until", until, now, is_end=True),
        **others,
    )


def _listed(words: Words) -> Any:
    if words is None:
        return []
    return list(words) if isinstance(words, Iterable) and not isinstance(words, str) else [words]


def find_by_name(client: Client, name: str, reader: Reader) -> int:
    """Return the id of the only experiment of this name, archived or not.

    Raises:
        NotFound: There is none; the message has a similar name, or the command that lists names.
        Conflict: There are several; the message has their ids.
    """
    rows = client.find(ExperimentQuery(archived=True)).rows
    same = [row for row in rows if row.name == name]
    if not same:
        near = get_close_matches(name, {row.name for row in rows})
        listing = f"`{reader.experiment} list` has the names"
        hint = f"did you mean {near[0]!r}?" if near else listing
        raise NotFound(f"there is no experiment of the name {name!r}; {hint}")
    if len(same) > 1:
        each = [
            f"{row.id} (of {date_text(row.created_at)}, {STATUS_WORDS[row.status].lower()})"
            for row in same
        ]
        raise Conflict(
            f"{len(same)} experiments have the name {name!r}: "
            f"{listed(each, most=_MOST_LISTED)}; give the number of one"
        )
    return same[0].id


def to_rows(rows: Iterable[ExperimentRow]) -> Rows:
    """Return found experiments as a table; hyperparameters are those of the best trial."""
    return Rows(
        Row(
            {
                "id": row.id,
                "name": row.name,
                "state": api_name(row.status),
                "progress": row.progress,
                "metric": row.metric,
                "best": row.best_metric,
                "trials": row.num_trials,
                "slots": row.slots_per_trial.least,
                "created": row.created_at,
                "ended": row.ended_at,
                "labels": ", ".join(row.labels),
                "description": row.description,
                "notebook": row.notebook,
                "archived": row.is_archived,
                **{f"hparams.{path}": value for path, value in flattened(row.hparams)},
            }
        )
        for row in rows
    )
