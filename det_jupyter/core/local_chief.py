"""`local_chief_first`: one rank of each computer prepares what the others use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from det_jupyter.core.distributed import DistributedContext
from det_jupyter.words import error_text


@contextmanager
def local_chief_first(distributed: DistributedContext) -> Iterator[None]:
    """Run the block on one rank of each computer first, then on the others. Collective.

    The first rank prepares what the ranks of a computer share, such as a download:

        with local_chief_first(context.distributed):
            dataset = torchvision.datasets.MNIST(folder, download=True)

    Raises:
        RuntimeError: On the other ranks, which do not run the block if it failed on the first.
    """
    if distributed.local_size == 1:
        yield
    elif distributed.local_rank == 0:
        failure: str | None = "was ended"
        try:
            yield
            failure = None
        except BaseException as error:
            failure = f"raised {error_text(error)}"
            raise
        finally:
            distributed.broadcast_local((distributed.rank, failure))
    else:
        rank, failure = distributed.broadcast_local((-1, None))
        if failure is not None:
            raise RuntimeError(f"local_chief_first: rank {rank}, which goes first, {failure}")
        yield
