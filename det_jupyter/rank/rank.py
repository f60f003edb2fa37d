"""Runs a rank, from the start of its process to its exit. Every end is handled here.

    end                                        journal                      exit code
    trained to its length, paused, stopped,    RunEnded (every rank)        0, all ranks together
      a function returned
    the trial raised InvalidHP                 RunEnded (any rank)          1: it may be alone
    any other exception                        RankFailure                  1
    its agent has ended                        nothing                      killed (process.py)
    killed, crashed, os._exit, exec            nothing: the agent sends     any
                                               the end of its output

A rank that fails exits at once, by os._exit: destroying a process group, or joining a thread that
waits in a collective, could hang as long as the other ranks run. Those then fail too
("connection closed by peer"), but wait a moment before they report it. The agent ends them
meanwhile, so only the first failure is reported.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from det_jupyter import core, pytorch
from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.contract.host.rundir import RunDir
from det_jupyter.contract.messages import RankSpec
from det_jupyter.contract.run.control_page import ControlPage
from det_jupyter.contract.run.journal import Notice, RankStarted, RunEnded
from det_jupyter.contract.run.output_lines import read_end
from det_jupyter.contract.trial.captured import cell_labels, code_key
from det_jupyter.contract.values.entrypoints import Captured, Command, Imported, Program
from det_jupyter.core.evidence import give_evidence
from det_jupyter.core.journal import Journal
from det_jupyter.core.tracebacks import CodeNames
from det_jupyter.errors import ConfigError, InvalidHP
from det_jupyter.pytorch.messages import TrialMistake
from det_jupyter.pytorch.rng import seed_everything
from det_jupyter.pytorch.training.batch_events import Reason
from det_jupyter.pytorch.training.rehearsal import VARIABLE
from det_jupyter.rank import rendezvous
from det_jupyter.rank.endings import ExitedWith, explain, finish_failed, leave_copy, make_failure
from det_jupyter.rank.entrypoint import load_entrypoint
from det_jupyter.rank.functions import FunctionReason, FunctionRun
from det_jupyter.rank.kernel import KernelServer
from det_jupyter.rank.process import prepare_python, watch_lifeline
from det_jupyter.rank.variables import left_out
from det_jupyter.rank.work import CommandRun, ProgramRun, reported_steps

_KERNEL_AFTER_S = 2.0  # without a first step: a rank that hangs before it can be inspected
_MAX_NOTICES = 20  # per rank: threads may fail again and again


def run_rank(spec: RankSpec) -> NoReturn:
    """Run the rank of `spec`; `prepare_process` was called before."""
    rank, pid = RankProgram(spec), os.getpid()
    try:
        code = rank.live()
    except BaseException as error:  # the boundary of the process: exits of user code too
        if os.getpid() != pid:
            leave_copy(error)
        code = rank.fail(error)
        if isinstance(rank.work, ProgramRun):
            finish_failed(error, code)
    if os.getpid() != pid:
        leave_copy(None)
    _leave(code)


class RankProgram:
    """One rank: the state of its process while it trains, and for the report of its failure."""

    def __init__(self, spec: RankSpec) -> None:
        self.spec = spec
        self.folder = RunDir(Path(spec.run_dir))
        self.journal = Journal.of_run(self.folder, spec.place.rank)
        self.blobs = BlobStore.of(spec.data_dir)
        self.code_dir = Path(spec.data_dir) / "code" / code_key(spec.plan.capsule)
        self.workplace = spec.plan.workplace(self.folder)
        self.names = self._names({})
        self.device = rendezvous.choose_device(spec.plan, spec.place)
        # All of these have: trial, steps_completed, trained (steps in this run), live() (kernel
        # variables).
        self.work: pytorch.TrialRun | FunctionRun | ProgramRun | CommandRun | None = None
        self._num_notices = 0

    def live(self) -> int:
        """Train, or call the function, and return the exit code."""
        plan, place = self.spec.plan, self.spec.place
        prepare_python(self.spec)
        kernel = KernelServer(
            self.folder.connection_file(place.rank),
            f"{self.spec.socket_dir}/{place.rank}",
            self._namespace,
        )
        threading.excepthook = self._report_thread
        watch_lifeline(self.spec, after_s=_KERNEL_AFTER_S, then=kernel.start)
        if plan.entrypoint.per == "slot":  # the workers of launchers give their own
            give_evidence(self.folder, place.rank)
        rendezvous.limit_threads(place)
        backend = rendezvous.choose_backend(plan)
        started = RankStarted(
            at=time.time(), pid=os.getpid(), backend=backend, device=str(self.device)
        )
        self.journal.write(started)
        os.chdir(self.workplace)
        for name in left_out(self.spec):
            self._notice(f"the environment variable {name} is left out: it would be too long")
        named = plan.entrypoint
        if isinstance(named, Program | Command):
            self._run(named, kernel.start_soon)
            return 0  # the agent reports the end, because programs may also leave by os._exit
        sys.path.insert(0, str(self.workplace))  # imports work as in the notebook
        if place.world_size > 1:
            rendezvous.keep_group()
        entrypoint = self._load_entrypoint(named)
        secret = bytes.fromhex(self.spec.secret)
        distributed = rendezvous.join(
            place,
            backend,
            self.device,
            store=self.spec.store,
            secret=secret,
            network=self.spec.network,
        )
        do = self._train if isinstance(entrypoint, type) else self._call
        reason = do(entrypoint, distributed, kernel.start_soon)
        if self.work is not None:  # on every rank: without the record it has ended too early
            steps = self.work.steps_completed
            self.journal.write(RunEnded(at=time.time(), reason=reason, steps_completed=steps))
        return 0

    def _train(
        self,
        trial_class: Any,
        distributed: core.DistributedContext,
        on_first_step: Callable[[], None],
    ) -> Reason:
        info = core.TrialInfo.of(self.spec, self.device)
        context = core.managed_context(info, distributed, self.journal, lambda steps: None)
        core.set_current(context)
        self.work = work = pytorch.TrialRun(trial_class, context, on_first_step)
        return work.run()

    def _call(
        self,
        function: Any,
        distributed: core.DistributedContext,
        on_first_step: Callable[[], None],
    ) -> FunctionReason:
        if VARIABLE in os.environ:
            raise ConfigError(
                f"entrypoint: {function.__name__} is a function, which would train to its end; "
                "only batches of a PyTorchTrial class can be measured"
            )
        info = core.TrialInfo.of(self.spec, self.device)
        core.time_loop(info, distributed.rank, distributed.size, self.journal)
        context, counter = core.counted_context(info, distributed, self.journal, on_first_step)
        core.set_current(context)
        if distributed.is_chief:
            core.read_written_events(info, self.journal, counter.note)
        seed_everything(info.trial_seed)  # else all trials of a fork server draw the same
        self.work = work = FunctionRun(function, context, counter)
        return work.run()

    def _run(self, named: Program | Command, on_first_step: Callable[[], None]) -> None:
        plan, place = self.spec.plan, self.spec.place
        page = ControlPage(self.folder.control)
        noted = partial(reported_steps, page, len(plan.slots))
        first = plan.steps_completed
        if isinstance(named, Command):
            self.work = command = CommandRun(named, steps=noted, first=first)
            command.run()
            return
        counter = core.StepCounter(
            first,
            self.journal if place.rank == 0 else None,
            on_first_step,
            page.batch_writer(place.rank),
        )
        join = None
        if named.per == "slot":
            join = rendezvous.offer_group(self.spec, self.device)
        info = core.TrialInfo.of(self.spec, self.device)
        core.set_process(
            core.Process(info=info, journal=self.journal, on_steps=counter.note, join=join)
        )
        if named.per == "slot" or len(plan.slots) == 1:
            core.time_loop(info, place.rank, place.world_size, self.journal)
        if place.rank == 0:
            core.read_written_events(info, self.journal, counter.note)
        self.work = program = ProgramRun(named, steps=noted, first=first)
        program.run()

    def fail(self, error: BaseException) -> int:
        """Journal why this rank ends, and return the exit code."""
        core.end_reading()
        trained = self.work.trained if self.work else 0
        trial = self.work.trial if self.work else None
        code = error.code_in(trial) if isinstance(error, TrialMistake) else None
        explanation = explain(self.names, error, code)
        message = explanation.error
        if isinstance(error, InvalidHP):
            steps = self.work.steps_completed if self.work else 0
            ended = RunEnded(
                at=time.time(), reason="invalid_hp", steps_completed=steps, message=message
            )
            self.journal.write(ended)
            return 1
        before = self._printed_before()
        with suppress(Exception):  # the user's code may have closed or replaced the stream
            # A traceback begins on a line of its own, not behind a progress bar.
            sys.stderr.write("\n" * (before[-1:] not in ("", "\n")) + explanation.printed)
        failure = make_failure(self.spec, error, explanation, trained=trained, printed=before)
        self.journal.write(failure)
        return error.code if isinstance(error, ExitedWith) else 1

    def _printed_before(self) -> str:
        with suppress(Exception):  # the user's code may have closed or replaced the streams
            sys.stdout.flush()
            sys.stderr.flush()
        return read_end(self.folder.output(self.spec.place.rank))

    def _report_thread(self, ended: threading.ExceptHookArgs) -> None:
        """Print and journal the error that ended a thread of the user; the rank trains on."""
        error = ended.exc_value
        if error is None or isinstance(error, SystemExit):
            return
        explanation = explain(self.names, error)
        with suppress(Exception):  # the user's code may have closed or replaced the stream
            sys.stderr.write(explanation.printed)
        place = f" ({explanation.where})" if explanation.where else ""
        name = ended.thread.name if ended.thread is not None else "a thread"
        rank = self.spec.place.rank
        text = (
            f"rank {rank}: the thread {name!r} ended with {explanation.error}{place}; the "
            "training goes on without it, and the log has the traceback"
        )
        self._notice(text)

    def _notice(self, text: str) -> None:
        if self._num_notices < _MAX_NOTICES:
            self._num_notices += 1
            self.journal.write(Notice(at=time.time(), rank=self.spec.place.rank, text=text))

    def _load_entrypoint(self, entrypoint: Captured | Imported) -> Any:
        capsule = self.spec.plan.capsule
        if capsule.sources:
            self.names = self._names(cell_labels(capsule, self.blobs))
        places = (self.code_dir, self.workplace)
        return load_entrypoint(capsule, self.blobs, *places, entrypoint, self.spec.plan.hparams)

    def _names(self, labels: Mapping[str, str]) -> CodeNames:
        context = self.workplace if self.spec.plan.has_context else None
        return CodeNames(labels, [self.code_dir, self.workplace], context)

    def _namespace(self) -> dict[str, Any]:
        rendezvous.use_device(self.device)
        live = self.work.live() if self.work else {}
        return live | {
            "rank": self.spec.place.rank,
            "world_size": self.spec.place.world_size,
            "device": self.device,
            "det_stack": self.names.main_stack,
        }


def _leave(code: int) -> NoReturn:
    for child in multiprocessing.active_children():  # data-loader workers of a rank that failed
        child.kill()
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)
