"""What a rank reports of the error that ends it."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import pytest

from det_jupyter.contract.host import disk_space, paths
from det_jupyter.contract.messages import CheckpointRef
from det_jupyter.contract.run.journal import RankFailure, Record, RunEnded
from det_jupyter.core import failures
from det_jupyter.core.failures import explain, failure_of, report_uncaught
from det_jupyter.core.info import read_run
from det_jupyter.core.journal import Journal
from det_jupyter.core.managed import StepCounter
from det_jupyter.core.peer_errors import PeerFailed, PeerLost
from det_jupyter.core.together import run_on_chief
from det_jupyter.core.tracebacks import CodeNames
from det_jupyter.errors import ConfigError, InvalidHP, PeerRefused, WaitTimeout
from tests.unit.core.run_folder import make_run, records_of
from tests.unit.pytorch.thread_ranks import ThreadRank, run_ranks


class Unspeakable(ValueError):
    @property
    def __cause__(self) -> BaseException:  # type: ignore[override]
        raise KeyError("no cause")


def test_an_error_that_cannot_be_explained_is_reported_by_its_type() -> None:
    explanation = explain(CodeNames({}, []), Unspeakable("shapes differ"))
    assert explanation.error == "Unspeakable (formatting its message failed: KeyError)"
    assert explanation.printed == "Unspeakable (formatting its message failed: KeyError)\n"


def test_a_script_that_lacks_determined_is_told_what_to_install() -> None:
    error = ModuleNotFoundError("No module named 'determined'", name="determined")
    failure = failure_of(
        error, explain(CodeNames({}, []), error), rank=2, is_echo=False, is_early=True
    )
    assert failure.error == (
        "ModuleNotFoundError: No module named 'determined'; code for Determined needs "
        "`pip install det-jupyter-determined`"
    )
    assert failure.rank == 2


@pytest.mark.parametrize(
    ("error", "is_echo", "is_early", "is_final"),
    [
        (ValueError("shapes differ"), False, True, True),  # it would fail again
        (ValueError("shapes differ"), False, False, False),
        (ValueError("connection closed"), True, True, False),  # another rank is the cause
        (PeerRefused("no secret"), False, True, False),
        (WaitTimeout("rank 1 has not come"), False, True, False),
        (OSError(errno.EAGAIN, "no process can be forked"), False, True, False),
        (OSError(errno.ENOENT, "no such file"), False, True, True),
        (ConfigError(["no class"]), False, False, True),
    ],
)
def test_only_a_failure_that_repeats_is_final(
    error: Exception, is_echo: bool, is_early: bool, is_final: bool
) -> None:
    explanation = explain(CodeNames({}, []), error)
    failure = failure_of(error, explanation, rank=0, is_echo=is_echo, is_early=is_early)
    assert failure.final is is_final
    assert failure.error.startswith("another rank is gone: ") is is_echo


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_named_and_no_final_failure(tmp_path: Path, number: int) -> None:
    try:
        try:
            raise OSError(number, os.strerror(number), str(tmp_path / "file"))
        except OSError as cause:
            raise ValueError("the table cannot be written") from cause
    except ValueError as error:
        explanation = explain(CodeNames({}, []), error)
        failure = failure_of(error, explanation, rank=0, is_echo=False, is_early=True)
    assert failure.error == (
        f"no room on the disk of {tmp_path}: ValueError: the table cannot be written; make room "
        "there, or write to a folder on another disk"
    )
    assert (failure.no_room, failure.final) == (True, False)


def test_full_disk_of_another_rank_is_the_cause_if_that_rank_could_not_report_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(failures, "_ECHO_DELAY_S", 0.0)

    def save(rank: ThreadRank) -> None:
        def write() -> None:
            if rank.rank == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/full")

        run_on_chief(rank, write)

    _, error = run_ranks(2, save)
    assert isinstance(error, PeerFailed)
    explanation = explain(CodeNames({}, []), error)
    failure = failure_of(error, explanation, rank=1, is_echo=True, is_early=True)
    assert (failure.no_room, failure.final, failure.is_echo) == (True, False, True)
    assert "rank 0 failed: OSError: [Errno 28]" in failure.error
    assert failure.error.endswith("; make room there, or write to a folder on another disk")


def test_a_full_disk_that_the_error_does_not_name_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path))
    full = paths.data_dir()

    def make_file(dir: str) -> Any:
        if dir == str(full):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return TemporaryFile(dir=dir)

    monkeypatch.setattr(disk_space, "TemporaryFile", make_file)
    error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # of a write to an open file
    explanation = explain(CodeNames({}, []), error)
    failure = failure_of(error, explanation, rank=0, is_echo=False, is_early=False)
    assert failure.error == (
        f"no room on the disk of {full}: OSError: [Errno 28] No space left on device; make room "
        "there, or write to a folder on another disk"
    )


# Uncaught


def uncaught(
    home: Path, error: BaseException, rank: int = 0, *, steps: int = 0, **plan: Any
) -> list[Record]:
    """Return what a worker journals of an error that nothing catches."""
    folder = make_run(home, num_slots=2, **plan)
    run = read_run(str(folder.path), str(home))
    checkpoint = run.plan.checkpoint
    counter = StepCounter(
        checkpoint.steps_completed if checkpoint else 0, None, lambda: None, lambda num: None
    )
    counter.note(counter.first + steps)
    report_uncaught(run, rank, Journal(folder.journal(0)), counter)
    sys.excepthook(type(error), error, None)
    return records_of(folder, 0)


@pytest.mark.parametrize("is_ours", [True, False])
@pytest.mark.parametrize(
    ("error", "ending"),
    [(ValueError("no"), "ValueError: no\n"), (KeyboardInterrupt(), "KeyboardInterrupt\n")],
)
def test_an_uncaught_error_is_printed_once_by_the_hook_that_was_there(
    is_ours: bool,
    error: BaseException,
    ending: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    told: list[object] = []
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    if not is_ours:
        monkeypatch.setattr(sys, "excepthook", lambda *given: told.append(given))
    is_interrupt = isinstance(error, KeyboardInterrupt)
    assert len(uncaught(tmp_path, error)) == (0 if is_interrupt else 1)
    assert told == ([] if is_ours else [(type(error), error, None)])
    assert capsys.readouterr().err == (ending if is_ours else "")


def test_a_fork_of_a_worker_journals_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "excepthook", lambda *given: monkeypatch.setattr(os, "getpid", int))
    assert uncaught(tmp_path, ValueError("no")) == []


AT_40 = CheckpointRef(uuid="b" * 32, path="x", steps_completed=40)


@pytest.mark.parametrize(
    ("error", "rank", "steps", "checkpoint", "of_rank", "is_final"),
    [
        (ValueError("no"), 0, 0, None, 0, True),
        (ValueError("no"), 0, 1, None, 0, False),  # it has trained
        (ValueError("no"), 0, 0, AT_40, 0, False),  # an earlier run has
        (ValueError("no"), 1, 0, None, 1, False),  # it may have
        (ValueError("no"), 5, 0, None, 1, False),  # the gang has two ranks
        (PeerLost("gone"), 0, 0, None, 0, False),
    ],
)
def test_an_uncaught_error_is_final_where_no_batch_was_trained(
    error: Exception,
    rank: int,
    steps: int,
    checkpoint: CheckpointRef | None,
    of_rank: int,
    is_final: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("det_jupyter.core.failures._ECHO_DELAY_S", 0)
    monkeypatch.setattr(sys, "excepthook", lambda *given: None)
    (failure,) = uncaught(tmp_path, error, rank, steps=steps, checkpoint=checkpoint)
    assert isinstance(failure, RankFailure)
    assert (failure.rank, failure.final) == (of_rank, is_final)
    assert failure.error.startswith("another rank is gone: ") is isinstance(error, PeerLost)


def test_an_uncaught_refusal_of_hyperparameters_ends_the_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "excepthook", lambda *given: None)
    (end,) = uncaught(tmp_path, InvalidHP("too wide"), steps=3)
    assert isinstance(end, RunEnded)
    assert (end.reason, end.steps_completed, end.message) == ("invalid_hp", 3, "too wide")
