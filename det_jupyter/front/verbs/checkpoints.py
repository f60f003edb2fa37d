"""Verbs about checkpoints: list, describe, copy and delete them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from det_jupyter.client.handles.checkpoint import Checkpoint
from det_jupyter.contract.messages import CheckpointView, DropCheckpoints, ExperimentView
from det_jupyter.contract.values.direction import Direction
from det_jupyter.contract.values.text import count, date, length, size
from det_jupyter.errors import DetError, NotFound, UsageError
from det_jupyter.front.verbs.grammar import Call
from det_jupyter.front.verbs.lifecycle import confirm
from det_jupyter.front.verbs.listings import Listing, cell_text, render

_HEADER = ("Trial ID", "# of Batches", "State", "Validation Metric", "UUID", "Size", "Created",
           "Path")  # fmt: skip


def list_of_experiment(call: Call) -> str:
    """Return a row for each checkpoint, oldest first; with `--best N`, the best of them."""
    given, view = call.options, call.client.experiment(call.options.id)
    found: Sequence[CheckpointView] = call.client.checkpoints(given.id)
    if given.best is not None:
        found = best_first(found, view.direction)[: given.best]
    return _listed(call, found, f"Experiment {given.id} has none.")


def list_matching(call: Call) -> str:
    """Return a row for each checkpoint of an experiment, or that a pattern matches."""
    which = call.options.which
    if which.isdecimal():
        found = call.client.checkpoints(int(which))
        return _listed(call, found, f"Experiment {which} has none.")
    found = call.client.find_checkpoints(which)
    return _listed(call, found, f"No checkpoint matches {which}.", of_several=True)


def _listed(
    call: Call, found: Sequence[CheckpointView], if_empty: str, *, of_several: bool = False
) -> str:
    """Return a row for each checkpoint; `of_several`: with its experiment."""

    def rows(*, is_data: bool) -> list[list[Any]]:
        own = [[each.experiment_id] if of_several else [] for each in found]
        rest = (_row(each, is_data=is_data) for each in found)
        return [first + row for first, row in zip(own, rest, strict=True)]

    listing = Listing(
        header=("Experiment ID", *_HEADER) if of_several else _HEADER,
        rows=rows(is_data=False),
        data=rows(is_data=True),
        names=("UUID",),
        if_empty=if_empty,
    )
    return render(listing, call.options)


def _row(view: CheckpointView, *, is_data: bool) -> list[Any]:
    return [
        view.trial_id,
        view.steps_completed,
        view.state,
        view.searcher_metric,
        view.uuid,
        view.size_bytes if is_data else size(view.size_bytes),
        date(view.created_at),
        view.path,
    ]


def best_first(found: Sequence[CheckpointView], direction: Direction) -> list[CheckpointView]:
    """Return the kept checkpoints with a validation, the best first."""
    measured = [c for c in found if c.searcher_metric is not None and c.state == "COMPLETED"]
    return sorted(measured, key=lambda c: (direction.loss(c.searcher_metric), c.steps_completed))


def select(call: Call, *, stored: bool = True) -> list[CheckpointView]:
    """Return the checkpoints that the words of a line name, each once.

    Args:
        stored: Whether patterns leave out those that are deleted.

    Raises:
        NotFound: A name or pattern matches none.
    """
    found: dict[str, CheckpointView] = {}
    problems = []
    for word in dict.fromkeys(word for part in call.options.uuids for word in part):
        try:
            views = _matching(call, word, stored=stored)
        except NotFound as error:
            problems.append(str(error))
        else:
            found |= {view.uuid: view for view in views}
    if problems:
        raise NotFound("; ".join(problems))
    return list(found.values())


def _matching(call: Call, word: str, *, stored: bool) -> list[CheckpointView]:
    if not _is_pattern(word):
        return [call.client.checkpoint(word)]
    views = call.client.find_checkpoints(word)
    kept = [view for view in views if not stored or view.state != "DELETED"]
    if not kept:
        deleted = f"; {count(len(views), 'checkpoint')} of it deleted" * bool(views)
        raise NotFound(f"no checkpoint matches {word}{deleted}")
    return kept


def _is_pattern(word: str) -> bool:
    return not {*"/*?["}.isdisjoint(word)


def _are_several(call: Call) -> bool:
    words = [word for part in call.options.uuids for word in part]
    return len(words) > 1 or _is_pattern(words[0])


def describe(call: Call) -> str:
    """Return the experiment, trial, batch, metric, path and files of checkpoints."""
    found = select(call, stored=False)
    if not call.options.json:
        return "\n\n".join(_described(call, view) for view in found)
    documents = [
        view.model_dump(mode="json") | {"resources": _files(call, view)} for view in found
    ]
    document = documents if _are_several(call) else documents[0]
    return json.dumps(document, indent=2, ensure_ascii=False)


def _files(call: Call, view: CheckpointView) -> dict[str, int]:
    return Checkpoint(view, Path(call.client.session.info.data_dir)).files


def _described(call: Call, view: CheckpointView) -> str:
    files = _files(call, view)
    rows = {
        "Experiment ID": view.experiment_id,
        "Trial ID": view.trial_id,
        "# of Batches": view.steps_completed,
        "Report Time": date(view.created_at),
        "Checkpoint ID": view.uuid,
        "Validation Metric": view.searcher_metric,
        "State": view.state,
        "Path": view.path,
        "Size": size(view.size_bytes),
        "Files": ", ".join(f"{name} ({size(num)})" for name, num in files.items()) or None,
    }
    if view.former:  # where it was moved from
        rows["Still At"] = view.former
    width = max(map(len, rows))
    return "\n".join(f"{name.ljust(width)}  {cell_text(value)}" for name, value in rows.items())


def download(call: Call) -> str:
    """Copy the files of checkpoints; of several, each into a folder of its name."""
    folder = call.options.output_dir
    if not _are_several(call):
        return _copied(call, select(call)[0], folder)
    root = Path(folder or "checkpoints")
    return "\n".join(_copied(call, view, root / view.uuid) for view in select(call))


def download_of_trial(call: Call) -> str:
    """Copy a checkpoint of a trial: the best, the latest, or the one of `--uuid`."""
    given, client = call.options, call.client
    _check_metric(call)
    trial = client.trial(given.id)
    view = client.experiment(trial.experiment_id)
    own = [c for c in client.checkpoints(view.id) if c.trial_id == given.id]
    kept = [c for c in own if c.state == "COMPLETED"]
    if given.uuid is not None:
        chosen = [c for c in own if c.uuid == given.uuid]
        problem = f"trial {given.id} has no checkpoint {given.uuid}"
    elif given.latest:
        chosen = sorted(kept, key=lambda c: c.steps_completed)[-1:]
        problem = f"trial {given.id} has no checkpoint"
    else:
        chosen = _ranked(call, view, kept)[:1]
        of = f" of {given.sort_by}" if given.sort_by else ""
        problem = f"trial {given.id} has no checkpoint with a validation{of}; try --latest"
    if not chosen:
        raise NotFound(problem)
    return _copied(call, chosen[0], given.output_dir)


def download_best(call: Call) -> str:
    """Copy the best checkpoints of an experiment, each into its own folder."""
    given, client = call.options, call.client
    _check_metric(call)
    ranked = _ranked(call, client.experiment(given.id), client.checkpoints(given.id))
    if not ranked:
        of = f" of {given.sort_by}" if given.sort_by else ""
        raise NotFound(f"experiment {given.id} has no checkpoint with a validation{of}")
    folder = Path(given.output_dir or f"experiment-{given.id}-checkpoints")
    return "\n".join(_copied(call, each, folder / each.uuid) for each in ranked[: given.top_n])


def _check_metric(call: Call) -> None:
    given = call.options
    if (given.sort_by is None) != (given.smaller_is_better is None):
        raise UsageError(f"{given.words}: give --sort-by and --smaller-is-better together")


def _ranked(
    call: Call, view: ExperimentView, found: Sequence[CheckpointView]
) -> list[CheckpointView]:
    """Return checkpoints best first, by the metric of `--sort-by` or the searcher's."""
    given = call.options
    if given.sort_by is None:
        return best_first(found, view.direction)
    values = {
        (curve.trial_id, steps): value
        for curve in call.client.curves(view.id)
        if (curve.group, curve.name) == ("validation", given.sort_by)
        for steps, value in zip(curve.steps, curve.values, strict=True)
        if value is not None
    }
    rated = [
        c.model_copy(update={"searcher_metric": values.get((c.trial_id, c.steps_completed))})
        for c in found
    ]
    return best_first(rated, Direction.of(smaller_is_better=given.smaller_is_better))


def _copied(call: Call, view: CheckpointView, folder: str | Path | None) -> str:
    try:
        path = Checkpoint(view, Path(call.client.session.info.data_dir)).download(folder)
    except OSError as error:
        raise DetError(f"{folder}: cannot be written: {error.strerror or error}") from None
    if call.options.quiet:
        return str(path)
    metric = "" if view.searcher_metric is None else f", metric {view.searcher_metric:.4g}"
    return (
        f"Copied checkpoint {view.uuid} (trial {view.trial_id}, "
        f"{length({'batches': view.steps_completed})}{metric}) to {path}"
    )


def delete(call: Call) -> str:
    """Delete checkpoints, after one confirmation: all of them or, if one is in use, none."""
    views = select(call)
    what, globs = count(len(views), "checkpoint"), call.options.globs
    if globs:
        what = f"the files that match {' or '.join(globs)} of {what}"
    else:
        what = f"{what} ({size(sum(view.size_bytes for view in views))})"
    owners = sorted({view.experiment_id for view in views})
    if len(owners) > 1:
        what += f" of experiments {', '.join(map(str, owners))}"
    if not confirm(f"Delete {what}?", call.options):
        return f"Nothing is deleted; {'it stays' if len(views) == 1 else 'all stay'}."
    call.client.change(DropCheckpoints(uuids=[view.uuid for view in views], globs=globs or []))
    return f"Deleting {what}."
