"""The verb that imports runs of other tools."""

from __future__ import annotations

from det_jupyter.client.imports.importing import ImportResult, import_runs
from det_jupyter.contract.values.text import count
from det_jupyter.front.verbs.grammar import Call


def import_(call: Call) -> str:
    """Make experiments of the runs at a path or URI; return what was imported."""
    given = call.options
    found = import_runs(
        call.client,
        given.source,
        metric=given.metric,
        larger_is_better=given.larger_is_better,
    )
    return "\n".join(line for each in found for line in _lines(call, each))


def _lines(call: Call, found: ImportResult) -> list[str]:
    number = found.experiment_id
    runs, values = count(found.num_runs, "run"), count(found.num_values, "value")
    if not found.num_new:
        first = f"Experiment {number} has all {runs} and {values} of {found.source} already."
    else:
        first = f"Experiment {number} has {runs} and {values} of {found.source}."
    show = call.reader.fill(f"`{{det}} experiment show {number}` shows it")
    if found.metric:
        about = f"Its trials are compared by {found.metric}; {show}."
    else:
        names = f" ({', '.join(found.validated)})" if found.validated else ""
        about = (
            f"No metric was given to compare its trials by{names}; delete it and import again "
            f"with --metric NAME, and --larger-is-better if that is so; {show}."
        )
    return [first, about, *(f"Not read: {remark}" for remark in found.remarks)]
