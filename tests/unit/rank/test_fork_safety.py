"""When the fork server refuses to fork."""

from __future__ import annotations

import sys
import threading
from types import SimpleNamespace

import pytest

from det_jupyter.contract.host.own_threads import start_own
from det_jupyter.rank import fork_safety


def test_a_process_with_a_second_thread_must_not_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_safety, "_threads", lambda: {1: "python", 2: "loader"})
    assert fork_safety.why_unsafe() == "the zygote has 2 threads: loader, python"


@pytest.mark.parametrize(
    ("is_initialized", "expected"), [(True, "the zygote has initialised CUDA"), (False, "")]
)
def test_a_process_that_has_initialised_cuda_must_not_fork(
    is_initialized: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fork_safety, "_threads", lambda: {1: "python"})
    cuda = SimpleNamespace(is_initialized=lambda: is_initialized)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    assert fork_safety.why_unsafe() == expected


def test_threads_of_the_rank_itself_are_not_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    start_own(thread)
    own = {threading.get_native_id(): "main", thread.native_id or 0: "lifeline", -1: "ZMQbg/IO"}
    try:
        monkeypatch.setattr(fork_safety, "_threads", lambda: own)
        loader = SimpleNamespace(native_id=-2)
        monkeypatch.setattr(threading, "enumerate", lambda: [thread, loader])
        assert not fork_safety._has_users_threads()
        monkeypatch.setattr(fork_safety, "_threads", lambda: own | {-2: "loader"})
        assert fork_safety._has_users_threads()
    finally:
        done.set()
        thread.join()
