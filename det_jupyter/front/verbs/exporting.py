"""Verbs that write an experiment's metrics, trials, samples or code to files."""

from __future__ import annotations

from pathlib import Path

from det_jupyter.client import Experiment
from det_jupyter.client.handles.exports import by_trial
from det_jupyter.client.tables import Columns, check_target, write
from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.contract.trial.context_dir import unpack_context
from det_jupyter.contract.values.text import count
from det_jupyter.errors import Conflict
from det_jupyter.front.verbs.grammar import Call


def export(call: Call) -> str:
    """Write metrics, trials, timings or system samples of an experiment to a file."""
    given, experiment = call.options, call.experiment(call.options.id)
    check_target(given.to)  # before the data are fetched
    columns = _columns(experiment, given.what)
    path = write(columns, given.to)
    rows = count(len(columns.get("trial", [])), "row")
    return f"Wrote {rows}, {given.what} of experiment {given.id}, to {path}."


def _columns(experiment: Experiment, what: str) -> Columns:
    match what:
        case "trials":
            return experiment.trials_table().to_columns()
        case "timings":
            return by_trial({trial.id: trial.step_times() for trial in experiment.trials})
        case "system":
            return by_trial({trial.id: trial.system_metrics() for trial in experiment.trials})
    return experiment.metric_columns()


def show_code(call: Call) -> str:
    """Return the captured source of an experiment, or write it to a folder."""
    given, code = call.options, call.experiment(call.options.id).code()
    if given.to is None:
        return repr(code)
    return "\n".join(f"Wrote {path}" for path in code.write(given.to))


def download_code(call: Call) -> str:
    """Write the context directory and the captured code of an experiment to a folder."""
    given, client = call.options, call.client
    capsule = client.experiment(given.id).capsule
    folder = Path(given.output_dir or f"experiment-{given.id}-code").expanduser()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise Conflict(f"{folder} is not an empty folder; give another one with --output-dir")
    lines = []
    if capsule.context is not None:
        if folder.exists():
            folder.rmdir()  # unpack_context creates it
        blobs = BlobStore.of(client.session.info.data_dir)
        unpack_context(capsule.context, blobs, folder)
        files = count(capsule.context.num_files, "file")
        lines.append(f"Wrote the {files} of the folder of experiment {given.id} to {folder}")
    if capsule.payload:
        written = call.experiment(given.id).code().write(folder)
        lines.append(f"Wrote {count(len(written), 'source')} of experiment {given.id} to {folder}")
    return "\n".join(lines) or f"Experiment {given.id} brought no code of its own."
