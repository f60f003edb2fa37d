"""The last step of a gang is saved by the ranks that survive, when another one is killed.

    each step      every rank writes its random generators and its models' buffers into its step
                   page, as the exchange of gradients begins; what the trial may change before its
                   optimizers step is copied before that
    a rank ends    the collectives of the others raise; each writes into its page which step it has
    then           the rank with the most steps, the lowest of them, saves a checkpoint of all
                   ranks' states, unless one saves already that has waited 1 s for others. If it
                   is killed meanwhile, the next one does; the others wait for it and exit, and
                   the agent ends the gang (agent/runs)

The next run begins with this checkpoint, so at most the window of batches that was interrupted is
trained again: one batch, unless `aggregation_frequency` is above 1. Weights and states of
optimizers do not change before the optimizer steps; buffers and generators do, and are set back.
Buffers are the chief's, which sends its own to the others as a window begins. If it has ended
before that, those in its page are taken, but for buffers that have changed on this rank after the
exchange: averaged weights, for example, which are equal on all ranks.

Nothing is saved, and the next run begins with the last periodic checkpoint, if

    a scheduler, or an optimizer of models that are not   its weights are those of no batch
      sharded, has stepped in the interrupted window,
      or has changed weights in another way
    the batch completes a report, checkpoint, validation  what of that is done is not known
    one of these, or a user's change, was within the      it is not part of the last step's state
      interrupted window
    a rank failed by an error of its own                  the retry would fail as well
    the ranks train on GPUs, but for                      NCCL does not notice that a rank ended
      `optimizations.recover_on_gpus` on one computer
    DeepSpeed divides the state, PowerSGD compresses      parts of the state are lost with the rank
      gradients, or the trial has reducers
    an optimizer has no hooks, a scheduler no count       their steps are not noticed
    callbacks have hooks of checkpoints                   they expect all ranks, or the chief
    callbacks with a state have a hook of batches' start  it would count batches twice
      (in windows of several batches: any hook of batches)

Pages of ranks on other computers are received from them (far_pages.py), without buffers, and the
survivors of each computer save by themselves. Sharded models are copied (shard_copies.py); nothing
is saved of them if a whole computer is lost.

[m] A batch costs 2 µs in a tight loop, and more for models with buffers or many tensors.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

import torch

from det_jupyter.contract.run.journal import LastStepSaved
from det_jupyter.contract.run.step_page import SAVE_S, Phase, StepPage, StepSlot
from det_jupyter.core import Context, TrialInfo
from det_jupyter.core.peer_errors import is_lost_peer
from det_jupyter.errors import CheckpointError
from det_jupyter.pytorch.data.generators import (
    can_pack_generators,
    pack_generators,
    unpack_generators,
)
from det_jupyter.pytorch.messages import give_notice
from det_jupyter.pytorch.parallel import is_sharded
from det_jupyter.pytorch.rng import RngStates, get_states
from det_jupyter.pytorch.steps.batch_weight import Number
from det_jupyter.pytorch.training.exchange_watch import ExchangeWatch, can_watch
from det_jupyter.pytorch.training.far_pages import FarPages
from det_jupyter.pytorch.training.kept_state import KeptState
from det_jupyter.pytorch.training.page_buffers import buffers_of, in_page, size_in_page
from det_jupyter.pytorch.training.rank_connections import End, own_ends, shut_connections
from det_jupyter.pytorch.training.shard_copies import CopyLost, ShardCopies
from det_jupyter.pytorch.training.whole_state import can_save_for_all
from det_jupyter.pytorch.trial.callback_runner import Callbacks
from det_jupyter.pytorch.trial.context import PyTorchTrialContext

_OTHERS_S = 1.0  # how long other ranks may take to notice that a rank has ended
_LOOK_S = 0.005
_CAN_SAVE = (Phase.READY, Phase.SAVING)


@dataclass(eq=False)
class LastStep:
    """What this rank keeps of its last step. Methods of one rank are not collective."""

    context: PyTorchTrialContext
    core: Context
    page: StepPage
    ends: Set[End] = frozenset()  # of other ranks' connections
    far: FarPages | None = None  # of a gang on several computers
    watch: ExchangeWatch | None = None  # of a rank on a GPU
    shards: ShardCopies | None = None  # of sharded models
    _kept_at: int = -1  # the batch that what is kept is that before
    _noted: int = -1  # batches trained of the state that was noted last

    @classmethod
    def open(
        cls, context: PyTorchTrialContext, core: Context, callbacks: Callbacks
    ) -> Self | None:
        """Create this rank's page; return None if the gang cannot save its last step."""
        info, distributed = core.info, core.distributed
        if info is None or info.plan.is_program or distributed.size == 1:
            return None
        if not info.addresses and distributed.local_size < distributed.size:
            return None  # ranks started by hand on several computers: no agent connects them
        page = cls._create_page(info, context, core, callbacks)
        by_rank = distributed.allgather(None if page is None else own_ends())
        ends = [found for found in by_rank if found is not None]
        if page is None or len(ends) < len(by_rank):  # all ranks have pages, or none uses its own
            return None
        far = FarPages(page, info.folder, ends) if info.addresses else None
        device = context.device
        watch = ExchangeWatch(info.folder, device) if device.type != "cpu" else None
        del ends[distributed.rank]
        return cls(context, core, page, set[End]().union(*ends), far, watch)

    @classmethod
    def _create_page(
        cls, info: TrialInfo, context: PyTorchTrialContext, core: Context, callbacks: Callbacks
    ) -> StepPage | None:
        """Create this rank's page, if it can save its last step."""
        if not (can_pack_generators() and can_save_for_all(info, context, callbacks)):
            return None
        on_gpu = context.device.type != "cpu"
        if on_gpu and (info.addresses or not can_watch(context.device, context.config)):
            return None
        try:
            return StepPage.create(
                info.folder.step(core.distributed.rank),
                os.getpid(),
                buffers_bytes=0 if on_gpu else size_in_page(buffers_of(context.models)),
            )
        except OSError:  # the disk is full: the trial trains without
            return None

    def __post_init__(self) -> None:
        context, models = self.context, self.context.models
        self._in_windows = context.position.aggregation_frequency > 1
        self._kept = KeptState(context)
        self._buffers = self._kept.buffers
        if any(map(is_sharded, models)) and (info := self.core.info) is not None:
            elsewhere = () if self.far is None else self.far.pages
            self.shards = ShardCopies(
                self.core.distributed, models, context.optimizers, info.folder, elsewhere
            )
        self._rows: list[tuple[int, Sequence[Number], Number]] = []  # not read from the device
        self._slot, self._older = (
            (slot.head, slot.states, in_page(self._buffers, slot.buffers))
            for slot in self.page.slots()
        )

    def begin(self, steps_completed: int) -> None:
        """Note the state with which this run begins, after it was restored."""
        self._kept.begin()
        self.note(steps_completed)

    def note(self, steps_completed: int) -> None:
        """Write generators and buffers as those after this number of batches.

        On several computers, and with sharded models, it is collective.
        """
        self._write(steps_completed)
        self.note_step(steps_completed)

    def note_step(self, steps_completed: int) -> None:
        """Copy sharded models, and exchange pages with other computers; collective, as `note`."""
        if self.shards is not None:
            self.shards.note(steps_completed)
        if self.far is not None:
            self.far.exchange(steps_completed)

    def _write(self, steps_completed: int) -> None:
        if steps_completed != self._noted:
            self._slot, self._older = self._older, self._slot
            self._noted = steps_completed
        head, states, buffers = self._slot
        head[1] = 0
        length = pack_generators(states)
        if self.watch is not None:
            length = self.watch.pack_generator(states, length)
        if buffers:
            with torch.no_grad():
                torch._foreach_copy_(buffers, self._buffers)
        head[0] = steps_completed
        head[1] = length

    def note_exchange(self, steps_completed: int) -> None:
        """Write the batch to the control page, and the state, as the exchange of a step begins."""
        self.core.note_exchange(steps_completed)
        if not self._in_windows or self.context.position.is_step:
            self._write(steps_completed)

    def note_metrics(self, steps: int, metrics: Sequence[Number], records: Number) -> None:
        """Write the metrics of the last batch; on a GPU, before the next step."""
        if self.watch is not None:
            self._rows.append((steps, metrics, records))
            return
        self.page.note_row(steps, metrics, records)
        if self.far is not None:
            self.far.note_row(steps, [*map(float, metrics), float(records)])

    def await_exchange(self) -> None:
        """Wait until the device has exchanged the gradients; a PeerLost says that it has not."""
        assert self.watch is not None
        self.watch.await_exchange()
        self._write_rows()

    def _write_rows(self) -> None:
        for row in self._rows:
            self.page.note_row(*row)
        self._rows.clear()

    def rows(self, first: int, last: int, num_metrics: int) -> torch.Tensor:
        """Return the metrics and records of all ranks, `[ranks, metrics + 1, batches]`.

        Those of a rank that has not noted a batch from `first` to `last` are NaN.
        """
        pages, num_numbers = self._pages(), num_metrics + 1
        shape = (self.core.distributed.size, last - first + 1, num_numbers)
        by_rank = torch.full(shape, torch.nan, dtype=torch.float64)
        for rank, page in pages.items():
            for at, row in enumerate(page.rows(first, last, num_numbers)):
                if row is not None:
                    by_rank[rank, at] = torch.tensor(row, dtype=torch.float64)
        return by_rank.transpose(1, 2)

    def keep(self, index: int) -> None:
        """Keep what the trial may change before its optimizers step; batch `index` begins."""
        self._kept.keep()
        if self._buffers and self.watch is not None:
            self.watch.mark_received()
        self._kept_at = index

    def forget(self) -> None:
        """Note that the last state is to change, until it is noted again."""
        self._slot[0][1] = 0

    def close(self) -> None:
        """Unmap the page."""
        for each in (self.page, self.far, self.watch):
            if each is not None:
                each.close()

    def notice(self, error: BaseException) -> bool:
        """Return whether `error` says that another rank has ended; others notice it, too."""
        is_aborted = self.watch is not None and self.watch.is_aborted  # any error may follow
        if not (is_aborted or is_lost_peer(error)):
            self.page.set_phase(Phase.FAILED)
            return False
        if self.far is not None:
            self.far.close()  # what saves may need connections
        if self.watch is None:
            # Ranks that are no neighbours of the lost one wait for this one: they notice now.
            shut_connections(self.ends)
        return True

    def save(
        self,
        *,
        steps_completed: int,
        batches: int,
        is_whole: bool,
        write: Callable[[list[RngStates]], object],
    ) -> bool:
        """Save the last step after a rank has ended, if this rank is to save.

        Never raises: what prevents it is written to stderr. Returns whether this rank or another
        one has saved a step.

        Args:
            steps_completed: Batches trained at the last optimizer step.
            batches: Batches trained; greater within a window of several batches.
            is_whole: Whether the state is that of this step, but for what is kept here.
            write: Writes the checkpoint, given the states of all ranks' generators.
        """
        is_saved = False
        try:
            self._write_rows()
            if is_whole and (self._kept_at == steps_completed or batches == steps_completed):
                is_saved = self._save(steps_completed, write)
        except CopyLost as lost:
            text = f"the last step could not be saved: {lost}"
            give_notice(text, self.core.distributed.rank, self.core.sink)
        except Exception as problem:  # the user's callbacks may raise anything
            sys.stderr.write(f"the last step could not be saved: {problem}\n")
        finally:
            if self.page.phase is not Phase.SAVED:
                self.page.set_phase(Phase.DONE)
        return is_saved

    def _save(self, steps: int, write: Callable[[list[RngStates]], object]) -> bool:
        """Return whether this rank or another one has saved a step."""
        is_kept = self._kept_at == steps
        if is_kept and self._kept.is_torn:
            return False
        own = self.core.distributed.rank
        self.page.set_phase(Phase.READY, steps)
        pages = self._pages()
        if len(pages) != self.core.distributed.size:
            return False
        while True:
            ready = self._await_others(pages)
            if any(page.phase is Phase.SAVED for page in pages.values()):
                return True  # one that was faster than this rank could look
            if not ready:
                return False
            if (first := _first_of(ready, pages)) == own:
                break
            if self._await_save(pages[first]):
                return pages[first].phase is Phase.SAVED
        self.page.set_phase(Phase.SAVING, steps)
        slots = [slot for rank in sorted(pages) if (slot := pages[rank].slot_of(steps))]
        if len(slots) != len(pages):
            return False
        if is_kept:
            self._check_received()
            self._kept.set_back()
        elif own and self._buffers:
            self._check_received()
            chiefs, ours = (in_page(self._buffers, slots[rank].buffers) for rank in (0, own))
            self._kept.take_buffers(chiefs, ours)
        write([self._unpacked(slot) for slot in slots])
        repeats = self.context.position.batch_idx + 1 - steps
        self.core.sink.write(LastStepSaved(at=time.time(), steps_completed=steps, repeats=repeats))
        sys.stderr.write(f"a rank was lost; the next run begins with batch {steps:,}\n")
        self.page.set_phase(Phase.SAVED)
        return True

    def _await_save(self, page: StepPage) -> bool:
        """Wait until the rank that saves is done; return False if it has ended before."""
        deadline = time.monotonic() + SAVE_S
        while page.phase in _CAN_SAVE and time.monotonic() < deadline:
            if not page.is_alive:
                return page.phase not in _CAN_SAVE  # it may have been done in this moment
            time.sleep(_LOOK_S)
        return True

    def _unpacked(self, slot: StepSlot) -> RngStates:
        packed = slot.states[: slot.head[1]].tobytes()
        if self.watch is not None:
            packed = self.watch.unpack_generator(packed)
        unpack_generators(packed)  # this rank draws no more
        return get_states(self.context.device)

    def _pages(self) -> dict[int, StepPage]:
        assert self.core.info is not None
        pages = {} if self.far is None else self.far.pages.copy()
        for rank in set(range(self.core.distributed.size)) - pages.keys():
            with suppress(OSError, ValueError):
                pages[rank] = StepPage(self.core.info.folder.step(rank))
        return pages

    def _await_others(self, pages: Mapping[int, StepPage]) -> dict[int, int]:
        """Return the steps of the ranks that can save; {} if a rank has failed by itself."""
        deadline = time.monotonic() + _OTHERS_S
        while True:
            phases = {rank: page.phase for rank, page in pages.items()}
            if Phase.FAILED in phases.values():
                return {}
            waits = [
                rank
                for rank, phase in phases.items()
                if phase is Phase.TRAINING and pages[rank].is_alive
            ]
            if not waits or time.monotonic() > deadline:
                break
            time.sleep(_LOOK_S)
        return {
            rank: pages[rank].steps_completed
            for rank, phase in phases.items()
            if phase in _CAN_SAVE and pages[rank].is_alive
        }

    def _check_received(self) -> None:
        is_sender = self.core.distributed.rank == 0
        if self._buffers and not (self.watch is None or is_sender or self.watch.has_received):
            raise CheckpointError("buffers of rank 0 were not received as a whole")


def _first_of(ready: Mapping[int, int], pages: Mapping[int, StepPage]) -> int:
    """Return the rank that saves already, or else the lowest of those with the most steps."""
    return max(ready, key=lambda rank: (pages[rank].phase is Phase.SAVING, ready[rank], -rank))
