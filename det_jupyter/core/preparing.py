"""Preparing what the ranks of one computer share: a download, an unpacked or converted dataset."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from det_jupyter.core.distributed import DistributedContext
from det_jupyter.words import error_text


@contextmanager
def local_chief_first(distributed: DistributedContext) -> Iterator[None]:
    """Let one rank of each computer run the block before its other ranks do. Collective.

    All ranks run the block: the first downloads, and the others find it done.

        with local_chief_first(context.distributed):
            dataset = torchvision.datasets.MNIST(folder, download=True)

    Raises:
        RuntimeError: On the other ranks, at once, if the block failed on the first. They do not
            run it.
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
