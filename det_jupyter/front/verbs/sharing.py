"""Verbs that write an experiment to one file for others, and read such a file."""

from __future__ import annotations

from det_jupyter.client.sharing.archive_export import export_archive as write_archive
from det_jupyter.client.sharing.archive_import import import_archive as read_archive
from det_jupyter.contract.values.text import count, size
from det_jupyter.front.verbs.grammar import Call
from det_jupyter.front.verbs.html_page import write_page


def export_archive(call: Call) -> str:
    """Write an experiment to an archive; return what is in it."""
    given = call.options
    done = write_archive(call.client, given.id, given.file, given.checkpoints)
    parts = f"{count(done.num_trials, 'trial')}, {count(done.num_checkpoints, 'checkpoint')}"
    lines = [
        f"Wrote experiment {given.id} to {done.path} ({parts}, {size(done.size_bytes)}); "
        + call.reader.fill("`{det} experiment import-archive FILE` reads it.")
    ]
    if done.doubtful:
        names = ", ".join(done.doubtful)
        lines.append(f"Look at these before you send it, they may have secrets: {names}")
    return "\n".join(lines)


def import_archive(call: Call) -> str:
    """Make an experiment of an archive; return what was imported."""
    done = read_archive(call.client, call.options.file)
    number = done.stored.experiment_id
    parts = f"{count(done.num_trials, 'trial')}, {count(done.num_checkpoints, 'checkpoint')}"
    is_new = done.stored.num_values or done.stored.num_lines
    said = "was imported" if is_new else "has all of it already"
    show = call.reader.fill(f"`{{det}} experiment show {number}` shows it.")
    return "\n".join([f"Experiment {number} {said} ({parts}); {show}", *done.remarks])


def export_html(call: Call) -> str:
    """Write the view of an experiment to an HTML file; return its size."""
    path = write_page(call.client, call.options.id, call.options.file)
    return f"Wrote experiment {call.options.id} to {path} ({size(path.stat().st_size)})."
