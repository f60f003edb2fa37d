"""Verbs about the storages of checkpoints: copy and move there, list what is there, clear up."""

from __future__ import annotations

from collections.abc import Callable

from det_jupyter.client.copying import check_target, copied_path, copy_checkpoint
from det_jupyter.client.imports.adopting import Adopted, adopt
from det_jupyter.contract.messages import CheckpointView, Garbage, MoveCheckpoints
from det_jupyter.contract.values.text import count, date, size
from det_jupyter.errors import CheckpointError, Conflict, DetError
from det_jupyter.front.verbs.checkpoints import select
from det_jupyter.front.verbs.grammar import Call
from det_jupyter.front.verbs.lifecycle import confirm
from det_jupyter.front.verbs.listings import Cell, Listing, form_of, render

_HEADER = ("Why", "Experiment ID", "Size", "Last Written", "Path")
_WHY = {
    "policy": "not kept by its policy",
    "draft": "unfinished",
    "upload": "upload without an end",
    "unrecorded": "of a killed run",
    "moved": "left by a move",
}


def copy(call: Call) -> str:
    """Copy checkpoints to another folder or bucket; they stay where they are, too."""

    def copied(view: CheckpointView, location: str) -> str:
        where = copied_path(view, location)
        if not copy_checkpoint(view, location):
            return f"There already: checkpoint {view.uuid} {where}"
        return f"Copied checkpoint {view.uuid} ({size(view.size_bytes)}) to {where}"

    return _for_each(call, copied)


def move(call: Call) -> str:
    """Copy checkpoints to another folder or bucket, use them there, and delete the others."""

    def moved(view: CheckpointView, location: str) -> str:
        where = copied_path(view, location)
        if view.path == where:
            return f"There already: checkpoint {view.uuid} {where}"
        copy_checkpoint(view, location)
        call.client.change(MoveCheckpoints(uuids=[view.uuid], location=location))
        return f"Moved checkpoint {view.uuid} ({size(view.size_bytes)}) to {where}"

    return _for_each(call, moved)


def _for_each(call: Call, do: Callable[[CheckpointView, str], str]) -> str:
    """Return a line for each checkpoint; if some cannot be done, the others are nevertheless."""
    views, location = select(call), check_target(call.options.to)
    lines, problems = [], []
    for view in views:
        try:
            lines.append(do(view, location))
        except (CheckpointError, Conflict) as error:
            problems.append(str(error))
    if problems:
        raise DetError("\n".join([*lines, *problems]))
    return "\n".join(lines)


def adopt_all(call: Call) -> str:
    """List the checkpoints of a folder or bucket, as those of experiments that have ended."""
    found = adopt(call.client, call.options.location)
    return "\n".join(_adopted_lines(call, found))


def _adopted_lines(call: Call, found: Adopted) -> list[str]:
    lines = [
        f"Experiment {number} has {count(num, 'checkpoint')} of {found.location}; "
        f"`{call.reader.experiment} list-checkpoints {number}` lists them, and deleting it "
        "deletes these files."
        for number, num in found.experiments.items()
    ]
    if found.found_again:
        again = count(len(found.found_again), "checkpoint")
        lines.append(f"Found {again} again: {', '.join(found.found_again)}.")
    if found.num_known:
        are = "is" if found.num_known == 1 else "are"
        lines.append(f"{count(found.num_known, 'checkpoint')} of it {are} listed here already.")
    return [*lines, *(f"Left out: {problem}" for problem in found.problems)]


def collect(call: Call) -> str:
    """Show what policies do not keep and what crashes have left; delete it after a question."""
    given = call.options
    dry = call.client.collect_garbage()
    listing = Listing(
        header=_HEADER,
        rows=[_row(each) for each in dry.found],
        data=[_row(each, is_data=True) for each in dry.found],
        names=("Path",),
        if_empty="There is nothing to delete.",
    )
    table = render(listing, given)
    total = f"{count(len(dry.found), 'item')} ({_size_of(dry.found)})"
    problems = [f"Not looked through: {problem}" for problem in dry.problems]
    if given.dry_run or not dry.found:
        if form_of(given):
            return table
        return "\n".join([table, *problems, *([f"{total}; none is deleted."] * bool(dry.found))])
    if not given.yes:
        print(table)
    if not confirm(f"Delete {total}?", given):
        return "Nothing is deleted."
    done = call.client.collect_garbage([each.path for each in dry.found])
    problems = [f"Not cleared: {problem}" for problem in done.problems]
    what = count(len(done.found), "item")
    lines = [f"Deleted {what} ({_size_of(done.found)})."]
    if any(each.kind == "policy" for each in done.found):
        lines.append("The files of those that policies do not keep are removed in the background.")
    return "\n".join([*lines, *problems])


def _size_of(found: list[Garbage]) -> str:
    return size(sum(each.num_bytes for each in found))


def _row(each: Garbage, *, is_data: bool = False) -> list[Cell]:
    return [
        each.kind if is_data else _WHY[each.kind],
        each.experiment_id,
        each.num_bytes if is_data else size(each.num_bytes),
        date(each.changed_at),
        each.path,
    ]
