"""When the fork server refuses to fork."""

from __future__ import annotations

import os
import sys
import threading
import warnings
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


def test_no_torch_is_no_reason_not_to_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_safety, "_threads", lambda: {1: "python"})
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert fork_safety.why_unsafe() == ""
    assert fork_safety.why_cuda_unusable() == ""
    assert fork_safety.torch_cuda_version() is None


@pytest.mark.parametrize(
    ("platform", "reason"), [("linux", ""), ("darwin", "macOS cannot fork a process that has")]
)
def test_a_platform_that_cannot_fork_is_named(
    monkeypatch: pytest.MonkeyPatch, platform: str, reason: str
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    found = fork_safety.why_platform_unsafe()
    assert found.startswith(reason)
    assert bool(found) is bool(reason)


@pytest.mark.parametrize("is_bad", [True, False])
def test_a_fork_finds_out_whether_it_could_use_cuda(
    monkeypatch: pytest.MonkeyPatch, is_bad: bool
) -> None:
    torch = SimpleNamespace(cuda=SimpleNamespace(_is_in_bad_fork=lambda: is_bad))
    monkeypatch.setitem(sys.modules, "torch", torch)
    found = fork_safety.why_cuda_unusable()
    assert bool(found) is is_bad

    def fail() -> int:
        raise BlockingIOError(11, "no more processes")

    monkeypatch.setattr(os, "fork", fail)
    assert fork_safety.why_cuda_unusable().startswith("the zygote cannot fork: ")


@pytest.mark.parametrize(
    ("cuda", "hip", "version"),
    [("12.4", None, "12.4"), (None, "6.0", None), (None, None, None)],
)
def test_what_torch_was_built_for_is_known(
    monkeypatch: pytest.MonkeyPatch, cuda: str | None, hip: str | None, version: str | None
) -> None:
    torch = SimpleNamespace(version=SimpleNamespace(cuda=cuda, hip=hip))
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert fork_safety.torch_cuda_version() == version


def test_threads_are_named_whether_python_has_started_them_or_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done = threading.Event()
    thread = threading.Thread(target=done.wait, name="loader")
    thread.start()
    try:
        own = {threading.get_native_id(), thread.native_id}
        assert own <= fork_safety._threads().keys()
        monkeypatch.setattr(fork_safety, "_TASKS", "/no/such/folder")
        assert fork_safety._threads()[thread.native_id or 0] == "loader"
    finally:
        done.set()
        thread.join()


def test_python_warns_of_a_fork_only_where_the_user_has_started_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    has_threads = False
    monkeypatch.setattr(fork_safety, "_has_users_threads", lambda: has_threads)
    text = "This process (pid=7) is multi-threaded, use of fork() may lead to deadlocks in the chi"

    def is_shown() -> bool:
        fork_safety._choose_warning()
        num = len(warnings.filters)
        fork_safety._choose_warning()
        assert len(warnings.filters) == num  # it is changed only where that is necessary
        with warnings.catch_warnings(record=True) as caught:
            warnings.warn(text, DeprecationWarning, stacklevel=1)
        return bool(caught)

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert not is_shown()
        has_threads = True
        assert is_shown()
        has_threads = False
        warnings.simplefilter("always")  # the program shows all
        assert not is_shown()
    hooks: list[object] = []
    monkeypatch.setattr(os, "register_at_fork", lambda *, before: hooks.append(before))
    fork_safety.warn_of_users_threads()
    assert len(hooks) == (sys.version_info >= (3, 12))
