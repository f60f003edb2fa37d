"""The verb about disks: shows what uses their space, and frees what nothing refers to."""

from __future__ import annotations

from det_jupyter.contract.messages import DiskStatus, DiskUse
from det_jupyter.contract.values.reader import Reader
from det_jupyter.contract.values.text import count, size
from det_jupyter.front.verbs.grammar import Call
from det_jupyter.front.verbs.lifecycle import confirm
from det_jupyter.front.verbs.listings import Cell, Listing, form_of, render

_HEADER = ("What", "Experiment", "Size", "Files", "Can Be Freed", "How", "Folder")


def disk(call: Call) -> str:
    """Return what uses the space on the master's disks; with `--free`, free what is safe."""
    usage = call.client.disk_usage()
    safe_bytes = sum(use.safe_bytes for use in usage.uses)
    listing = Listing(
        header=_HEADER,
        rows=[_row(use, call.reader) for use in usage.uses],
        data=[_row(use, call.reader, is_data=True) for use in usage.uses],
        if_empty="Nothing is stored yet.",
    )
    if call.options.free:
        return _free(call, listing, safe_bytes)
    table = render(listing, call.options)
    if form_of(call.options):
        return table
    total = sum(use.num_bytes for use in usage.uses)
    lines = [_disk_line(status, call.reader) for status in usage.disks]
    end = f"{size(total)} in all"
    if safe_bytes:
        end += f"; `{call.reader.det} disk --free` frees {size(safe_bytes)} that nothing refers to"
    return "\n".join([*lines, table, f"{end}."])


def _free(call: Call, listing: Listing, safe_bytes: int) -> str:
    given = call.options
    if not safe_bytes:
        return "There is nothing that can be freed without loss."
    if not given.yes:
        print(render(listing, given))
    question = f"Free {size(safe_bytes)} that nothing refers to?"
    if not confirm(question, given):
        return "Nothing is freed."
    freed = call.client.free_room()
    lines = [f"Freed {size(freed.num_bytes)} ({count(freed.num_files, 'file')})."]
    return "\n".join([*lines, *freed.problems])


def _disk_line(status: DiskStatus, reader: Reader) -> str:
    if status.state != "ok":
        return status.sentence(reader)
    where = f"agent {status.agent_id}: " if status.agent_id else ""
    return f"{where}{status.folder}: {size(status.free_bytes)} of {size(status.total_bytes)} free."


def _row(use: DiskUse, reader: Reader, *, is_data: bool = False) -> tuple[Cell, ...]:
    experiment: Cell = use.experiment_id
    if not is_data and use.experiment_id is not None:
        experiment = f"{use.experiment_id} {use.name}".strip()
    return (
        use.kind,
        experiment,
        use.num_bytes if is_data else size(use.num_bytes),
        use.num_files,
        use.safe_bytes if is_data else (size(use.safe_bytes) if use.safe_bytes else ""),
        _how(use, reader),
        use.folder,
    )


def _how(use: DiskUse, reader: Reader) -> str:
    """Return how the space can be freed, in a few words."""
    if use.safe_bytes:
        return f"{reader.det} disk --free"
    match use.kind:
        case "checkpoints" if use.experiment_id is not None:
            return f"{reader.experiment} delete {use.experiment_id}"
        case "traces" | "tensorboard" if use.experiment_id is not None:
            return f"{reader.experiment} delete {use.experiment_id}"
        case "database":
            return "delete experiments"
        case "unrecorded":
            return "by hand: of a run that was given up, or of another master"
        case "copies":
            return "removed when not used for a week"
        case "reserve":
            return "given back when the disk is full"
        case "runs":
            return "removed when they are over"
        case _:
            return ""
