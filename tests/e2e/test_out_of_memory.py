"""A rank, or its loader worker, that the kernel kills because memory has run out."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from det_jupyter.client import Client
from det_jupyter.contract.messages import FailureView
from det_jupyter.errors import RankFailed
from tests.e2e.crash_kinds import Crash, training
from tests.e2e.test_crash_kinds import submit
from tests.processes import wait_until

pytestmark = pytest.mark.e2e

_LIMIT_BYTES = 64 << 20
_GROUPS = Path("/sys/fs/cgroup")
# A process joins the group, and takes more memory than the group may have.
_JOIN = "open('{}/cgroup.procs', 'w').write(str(os.getpid()))"
_TAKE = "taken = bytearray(b'1') * (256 << 20)"


def log_is_readable() -> bool:
    try:
        os.close(os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK))
    except OSError:
        return False
    return True


@pytest.fixture
def group() -> Iterator[Path]:
    """Return a control group with little memory."""
    is_first = (_GROUPS / "memory").is_dir()
    folder = (_GROUPS / "memory" if is_first else _GROUPS) / f"det-{uuid.uuid4().hex}"
    try:
        folder.mkdir()
        limit = "memory.limit_in_bytes" if is_first else "memory.max"
        (folder / limit).write_text(str(_LIMIT_BYTES))
    except OSError:
        if folder.exists():
            folder.rmdir()
        pytest.skip("no control group with a limit of memory can be made here")
    if not log_is_readable():  # the agent is in another group, which counts no kill
        folder.rmdir()
        pytest.skip("the kernel's log cannot be read here")
    yield folder
    wait_until(lambda: not (folder / "cgroup.procs").read_text(), "the group is empty")
    folder.rmdir()


def failure_of(client: Client, kind: Crash) -> FailureView:
    experiment = submit(client, kind)
    with pytest.raises(RankFailed):
        experiment.wait()
    failure = experiment.view.trials[0].failure
    assert failure is not None
    return failure


def test_a_rank_that_the_kernel_kills_says_so_with_what_held_the_memory(
    client: Client, group: Path
) -> None:
    lines = _JOIN.format(group), _TAKE
    kind = training("memory", *lines, error="", restarts=5, rank=1, ranks=2)
    failure = failure_of(client, kind)
    assert failure.no_memory
    said = (
        r"^rank 1 was killed by the kernel in batch 3: the memory of its control group "
        r"\(container or job\), 67 MB, ran out: rank 1 \d+ MB, .*rank 0 "
    )
    assert re.search(said, failure.error), failure.error
    assert failure.times == 2, "it is no signal that a user sends"


def test_a_loader_worker_that_the_kernel_kills_says_so(client: Client, group: Path) -> None:
    act = f"if index == 2: {_JOIN.format(group)}; {_TAKE}"
    kind = Crash(name="memory of a worker", code={"record": act}, workers=1)
    failure = failure_of(client, kind)
    assert failure.no_memory
    assert re.search(r"oader worker (0 of rank 0 )?\(pid \d+\)", failure.error), failure.error
    assert ": killed by the kernel: the memory of " in failure.error
    assert re.search(r"the loader workers of rank 0 \d+ MB", failure.error), failure.error
