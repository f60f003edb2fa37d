"""Copies of a checkpoint in another storage, before one of them is deleted."""

from __future__ import annotations

from contextlib import suppress

from det_jupyter.contract.values.bucket_urls import parse_bucket_url
from det_jupyter.errors import BucketProblem
from det_jupyter.storage.contract import METADATA_FILE
from det_jupyter.storage.kinds import find_checkpoint, folder_at


def find_copy_problem(path: str, copy: str) -> str:
    """Return why a checkpoint cannot be deleted although there is a copy; "": it can be.

    One folder or bucket may have several names, by a link or a second address, so a probe at one
    of the two paths must not be seen at the other.

    Args:
        path: Of the checkpoint, whose files may be deleted already.
        copy: Of its copy.

    Raises:
        CheckpointError: A storage cannot be reached.
    """
    (here, uuid), (there, _) = find_checkpoint(path), find_checkpoint(copy)
    files, copied = here.files(uuid), there.files(uuid)
    if not copied or (files and files != copied):
        return f"checkpoint {uuid}: {there.location} has other files of it than {here.location}"
    if files:
        with there.probe() as name:
            if here.has(name):
                return f"checkpoint {uuid}: {there.location} and {here.location} are the same"
    return ""


def find_outer_checkpoint(location: str) -> str:
    """Return the path of the checkpoint that a location is in; "" if it is in none.

    What is stored there would be deleted with that checkpoint.
    """
    folder = folder_at(location)
    if folder is not None:
        above = [*(folder, *folder.parents), *folder.resolve().parents]
        return next((str(each) for each in above if (each / METADATA_FILE).exists()), "")
    while parse_bucket_url(location).prefix:
        outer, name = find_checkpoint(location)
        with suppress(BucketProblem):  # without a right above a prefix
            if outer.has(f"{name}/{METADATA_FILE}"):
                return location
        location = outer.location
    return ""
