"""`adopt`: the checkpoints of a folder or bucket, from a notebook."""

from __future__ import annotations

from det_jupyter.client.calls import explains_arguments
from det_jupyter.client.imports import adopting
from det_jupyter.client.imports.adopting import Adopted
from det_jupyter.front.notebook.handles import connection


@explains_arguments
def adopt(location: str) -> Adopted:
    """List the checkpoints of a folder or bucket that the master's database does not know.

    They become experiments that are over; `det_jupyter.experiment(number)` has their checkpoints.
    The files stay where they are. Repeatable: what is listed already is left out.

    Args:
        location: A folder, or the location of a bucket such as s3://models/team.

    Raises:
        CheckpointError: The storage cannot be read.
        NotFound: It has no checkpoints.
    """
    return adopting.adopt(connection.client(), location)
