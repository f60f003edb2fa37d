"""DistributedDataParallel (DDP) that a trial can use like the model it wraps.

Every rank holds the whole model. Gradients are collected in buckets, and each bucket is exchanged
as soon as it is full, while the backward pass continues.

DDP prepares the exchange in its `forward`, for one backward pass. Gradients of losses that were
computed in another way (by a method, a submodule, a parameter) would not be exchanged, nor those
of a second backward pass. So `context.backward` prepares each pass: `prepare_exchange`. Gradients
that were exchanged before are then exchanged again, which does not change them: they are equal.

DDP also broadcasts the chief's buffers in its `forward`, where ranks that call the model
differently often would wait for each other. The loop does it as a batch begins: `sync_buffers`.
"""

from __future__ import annotations

import re
from operator import attrgetter
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from det_jupyter.contract.values.text import listed
from det_jupyter.pytorch.messages import TrialMistake
from det_jupyter.pytorch.parallel.compression import Compression, LowRank, register_compression

_requires_grad = attrgetter("requires_grad")
_UNFINISHED = "finished reduction in the prior iteration"  # in DDP's messages, as the next two
_TWICE = "mark a variable ready only once"
_UNUSED = re.compile(r"did not receive grad for rank \d+: ([\d ]+)")
_MAX_NAMES = 8  # names of parameters in a message
_TRAINED_BY_SOME = (
    "train_batch: {} is trained on some ranks only; set requires_grad to the same on all of them. "
    "What is drawn at random is different on each: draw from a generator that all of them seed "
    "alike, or share it: context.distributed.broadcast"
)


class DistributedModel(DistributedDataParallel):
    """A model whose gradients are averaged over the ranks while they are computed.

    Attributes that DDP lacks are looked up in the model. Without gradients (evaluation), a call
    is the model's own: DDP would broadcast buffers, and ranks may evaluate different numbers of
    batches.

    Args:
        module: The model, on its device.
        device: The model's device.
        compression: How gradients are compressed; None: not at all.
        bucket_mb: Size of the buckets in MB; None: torch's default.
        find_unused_parameters: Allow parameters that get no gradient in some batches.
        is_sent: Whether the chief sends its values to the others, which have other ones.
    """

    def __init__(
        self,
        module: nn.Module,
        device: torch.device,
        *,
        compression: Compression | None = None,
        bucket_mb: float | None = None,
        find_unused_parameters: bool = False,
        is_sent: bool = True,
    ) -> None:
        self._compression = compression
        self._has_fixed_buckets = not find_unused_parameters and fixes_buckets(device, compression)
        self.low_rank: LowRank | None = None
        self._build(module, device, bucket_mb, find_unused_parameters, init_sync=is_sent)
        if compression == "powersgd":
            self.low_rank = LowRank(module)
        self._fix_buckets()
        self._register_hook()

    def begin_batch(self, *, exchanges: bool) -> None:
        """Set whether the backward passes of this batch exchange gradients.

        One that was prepared may have reached no parameter of this model: those of a
        discriminator are frozen while the generator is trained. DDP would exchange in the next
        pass instead, also within a window, and a resumed run would not.
        """
        self.require_backward_grad_sync = exchanges
        if not exchanges and not self._unfinished():
            self.reducer._reset_state()

    def prepare_exchange(self, loss: torch.Tensor) -> None:
        """Prepare the exchange of gradients in the next backward pass, if the window ends.

        It does not matter how `loss` was computed from the model. Changes of a parameter's
        `requires_grad` since the last pass take effect.

        Raises:
            TrialMistake: `requires_grad` is not the same on all ranks.
        """
        if not self.require_backward_grad_sync:
            return
        if self._has_other_trained():
            self._agree_on_trained()
            self.set_bucket_size(self._bucket_mb)  # rebuilds the buckets
        if self._unfinished():
            return  # the second backward pass of this batch, for other parameters
        self.reducer._rebuild_buckets()  # once in a training, as `forward` does
        self.reducer.prepare_for_backward([loss] if self.find_unused_parameters else [])

    def check_exchanged(self) -> None:
        """Check that the exchange is complete, before gradients are used.

        Raises:
            TrialMistake: Some parameters got no gradient.
        """
        if error := self._unfinished():
            raise TrialMistake("train_batch", self._describe_unused(error))

    def sync_buffers(self) -> None:
        """Overwrite the buffers with the chief's. Collective."""
        if self.modules_buffers:
            self._sync_buffers()  # type: ignore[no-untyped-call]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model; see the class."""
        if not torch.is_grad_enabled():
            return self.module(*args, **kwargs)
        try:
            return super().forward(*args, **kwargs)  # type: ignore[no-untyped-call]
        except RuntimeError as error:
            if _UNFINISHED not in str(error):
                raise
            raise TrialMistake("train_batch", self._describe_unused(str(error))) from None

    def _describe_unused(self, error: str) -> str:
        """Return the message that names the parameters without gradients; DDP gives indices."""
        parameters, _ = self._build_params_for_reducer()
        found = _UNUSED.search(error)
        ids = {id(parameters[int(index)]) for index in found[1].split()} if found else set()
        unused = [name for name, it in self.module.named_parameters() if id(it) in ids]
        which = f": {listed(unused, most=_MAX_NAMES)}" if unused else ""
        return (
            f"train_batch: parameters of {type(self.module).__name__} got no gradient in a "
            f"batch{which}. If they are not used in every backward pass, say so: "
            "context.wrap_model(model, find_unused_parameters=True); if never, set "
            "requires_grad = False before. What forward returns has to lead to the loss"
        )

    def _unfinished(self) -> str:
        """Return DDP's message about an exchange that has begun and not ended; "" if none has."""
        try:
            self.reducer._check_reducer_finalized()
        except RuntimeError as error:
            return str(error)
        return ""

    def _has_other_trained(self) -> bool:
        """Return whether the trained parameters differ from those that DDP was built with."""
        if any(map(_requires_grad, self._untrained)):
            return True
        if self.find_unused_parameters or all(map(_requires_grad, self._trained)):
            return False
        return any(map(_requires_grad, self._trained))  # without any, no gradients are exchanged

    def _agree_on_trained(self) -> None:
        """Check that all ranks train the same parameters. Collective.

        Also averages, over the ranks, the gradients of parameters that were frozen within a
        window: they come from batches of this window before the freeze.
        """
        named = dict(self.module.named_parameters())
        facts = [[it.requires_grad, it.grad is not None] for it in named.values()]
        counts = torch.tensor(facts, dtype=torch.int64, device=self.device)
        dist.all_reduce(counts, group=self.process_group)
        size = dist.get_world_size(self.process_group)
        for (name, it), (trained, graded) in zip(named.items(), counts.tolist(), strict=True):
            if trained not in (0, size):
                raise TrialMistake("train_batch", _TRAINED_BY_SOME.format(name))
            if not trained and graded:
                gradient = torch.zeros_like(it) if it.grad is None else it.grad
                dist.all_reduce(gradient.div_(size), group=self.process_group)
                it.grad = gradient

    def set_bucket_size(self, bucket_mb: float | None) -> None:
        """Exchange gradients in buckets of another size from the next batch on. Collective.

        Call it when gradients are exchanged or zeroed: gradients of an unfinished window would
        have to be copied again.
        """
        inherited = nn.Module().__dict__.keys()
        kept = {name: value for name, value in self.__dict__.items() if name in inherited}
        exchanges = self.require_backward_grad_sync
        del self.logger, self.reducer  # removes their hooks from the parameters
        # No `init_sync`: ranks have equal parameters, which cannot be changed within a batch.
        self._build(
            self.module, self.device, bucket_mb, self.find_unused_parameters, init_sync=False
        )
        self.__dict__.update(kept)  # hooks on this module, its mode, its compiled form
        self.require_backward_grad_sync = exchanges
        self._fix_buckets()
        if self.low_rank is not None:
            self.low_rank.reset_layouts()
        self._register_hook()

    def _build(
        self,
        module: nn.Module,
        device: torch.device,
        bucket_mb: float | None,
        find_unused: bool,
        *,
        init_sync: bool,
    ) -> None:
        super().__init__(
            module,
            device_ids=[device] if device.type == "cuda" else None,
            bucket_cap_mb=bucket_mb,
            find_unused_parameters=find_unused,
            gradient_as_bucket_view=True,
            init_sync=init_sync,
        )
        self.broadcast_buffers = False  # not in `forward`: see `sync_buffers`
        self._bucket_mb = bucket_mb
        self._trained = [owner for owner in module.parameters() if owner.requires_grad]
        self._untrained = [owner for owner in module.parameters() if not owner.requires_grad]

    def _fix_buckets(self) -> None:
        """Fix the layout of buckets for the whole training, if `fixes_buckets`.

        DDP lays buckets out again after its first batch, in the order in which gradients were
        computed. With three ranks or more, the order in which an all-reduce adds depends on a
        gradient's position in its bucket. So the first batch after a pause would be summed in
        another order than without the pause.
        """
        if self._has_fixed_buckets:
            self.reducer._push_all_rebuilt_params()
            self.reducer._rebuild_buckets()

    def _build_params_for_reducer(self) -> tuple[list[Any], list[Any]]:
        """Return the parameters; for fixed buckets, in about the order of their gradients."""
        parameters, is_sparse = super()._build_params_for_reducer()  # type: ignore[no-untyped-call]
        step = -1 if self._has_fixed_buckets else 1
        return parameters[::step], is_sparse[::step]

    def _register_hook(self) -> None:
        """Register the hook that exchanges a bucket, also for a plain all-reduce.

        Without a hook, DDP averages each gradient as it enters the bucket: it multiplies by 1/size
        if it copies the gradient there, and divides by size if it is there already. With three
        ranks the results differ in the last bit, and the case depends on whether the gradients
        were zeroed or deleted, or restored from a checkpoint. A hook divides the whole bucket.
        """
        if self._compression is None:
            plain = dist.BuiltinCommHookType.ALLREDUCE  # type: ignore[attr-defined]  # no stub has it
            self._register_builtin_comm_hook(plain)  # type: ignore[no-untyped-call]
        else:
            register_compression(self, self._compression, self.low_rank)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            modules = self.__dict__.get("_modules", {})
            if "module" not in modules:
                raise
            return getattr(modules["module"], name)


def fixes_buckets(device: torch.device, compression: Compression | None) -> bool:
    """Return whether the layout of buckets is fixed before the first batch.

    A fixed layout assumes an order of gradients that is only roughly the real one, which costs
    time on a GPU. On a GPU it is fixed only for PowerSGD, which stores errors by bucket, and for
    deterministic algorithms.
    """
    if device.type == "cpu" or compression == "powersgd":
        return True
    return torch.are_deterministic_algorithms_enabled()


def explain_backward(error: RuntimeError) -> TrialMistake | None:
    """Return DDP's error in a backward pass as a TrialMistake; None for any other error."""
    if _TWICE not in str(error):
        return None
    return TrialMistake(
        "train_batch",
        "train_batch: two backward passes reached the same parameters, and the first not "
        "all of the model's, so they cannot be exchanged together. Say so: "
        "context.wrap_model(model, find_unused_parameters=True), or add the losses and call "
        "context.backward once. If it is torch.utils.checkpoint that computes a part twice, pass "
        "it use_reentrant=False",
    )
