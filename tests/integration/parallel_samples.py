"""Small models, and training them step by step, for the tests of what ranks exchange."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
from torch import nn

from det_jupyter.core import DistributedContext
from det_jupyter.pytorch import parallel
from det_jupyter.pytorch.parallel import DistributedModel, ParallelOptions

CPU = torch.device("cpu")
FEATURES = 12


class Blocks(nn.Module):
    """Blocks in a ModuleList, a buffer, and parameters outside of the blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.inward = nn.Linear(FEATURES, 10)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(10, 15), nn.Tanh(), nn.Linear(15, 10)) for _ in range(2)
        )
        self.norm = nn.BatchNorm1d(10, affine=False)
        self.outward = nn.Linear(10, 3, bias=False)
        self.note = "the user's own"

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = self.inward(inputs)
        for block in self.blocks:
            hidden = hidden + block(hidden)
        outputs: torch.Tensor = self.outward(hidden)
        return outputs


class Centered(Blocks):
    """A buffer that depends on the rank's records, and that the next batch depends on."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("center", torch.zeros(FEATURES))
        self.center: torch.Tensor

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs = super().forward(inputs - self.center)
        if self.training:
            self.center.lerp_(inputs.detach().mean(0), 0.5)
        return outputs


def make(
    distributed: DistributedContext,
    *,
    dtype: torch.dtype = torch.float32,
    kind: type[nn.Module] = Blocks,
    **options: Any,
) -> Any:
    """Return a model that the ranks train together; each rank begins with other weights."""
    torch.manual_seed(distributed.rank)
    model = kind().to(dtype)
    return parallel.parallelize(model, CPU, distributed, ParallelOptions(**options))


def records(index: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return the twelve records of a global batch; the same on all ranks."""
    generator = torch.Generator().manual_seed(index)
    return torch.randn(12, FEATURES, generator=generator, dtype=dtype)


class Run:
    """A model, its optimizer, and windows of batches."""

    def __init__(
        self,
        distributed: DistributedContext,
        *,
        dtype: torch.dtype = torch.float32,
        window: int = 1,
        set_to_none: bool = True,
        clip: float | None = None,
        **options: Any,
    ) -> None:
        self.distributed = distributed
        self.model = make(distributed, dtype=dtype, **options)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        self.batches = 0
        self._dtype, self._window = dtype, window
        self._set_to_none, self._clip = set_to_none, clip

    def train(self, batches: int) -> Run:
        """Train that many global batches, each divided evenly among the ranks."""
        for _ in range(batches):
            is_step = (self.batches + 1) % self._window == 0
            if isinstance(self.model, DistributedModel):
                self.model.require_backward_grad_sync = is_step
                if self.batches % self._window == 0:
                    self.model.sync_buffers()
            mine = records(self.batches, self._dtype).chunk(self.distributed.size)
            self.model(mine[self.distributed.rank]).square().mean().backward()
            if is_step:
                self._step()
            self.batches += 1
        return self

    def _step(self) -> None:
        if self._clip is not None:
            parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
            nn.utils.clip_grad_norm_(parameters, self._clip)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=self._set_to_none)

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint would hold of this rank, copied."""
        models = [self.model]
        return deepcopy(
            {
                "batches": self.batches,
                "model": parallel.model_state(self.model),
                "optimizer": parallel.optimizer_state(models, self.optimizer),
                "gradients": parallel.gradients(self.model),
                "exchange": parallel.rank_state(models),
            }
        )

    def load(self, state: dict[str, Any], gradients: dict[str, torch.Tensor]) -> Run:
        """Go on from there."""
        self.batches = state["batches"]
        parallel.load_model_state(self.model, state["model"])
        parallel.load_optimizer_state([self.model], self.optimizer, state["optimizer"])
        parallel.set_gradients(self.model, gradients)
        parallel.load_rank_state([self.model], state["exchange"])
        return self

    def weights(self) -> dict[str, torch.Tensor]:
        """Return the whole model's weights; of a sharded one on the chief only. Collective."""
        return {name: value.clone() for name, value in parallel.model_state(self.model).items()}


def resumes_exactly(
    distributed: DistributedContext, options: dict[str, Any], at: int, end: int
) -> bool:
    """Return whether a run ends the same with a pause, of which the chief saves what is shared."""
    straight = Run(distributed, **options).train(end).weights()
    state = Run(distributed, **options).train(at).state()
    shared = {name: distributed.broadcast(state[name]) for name in ("model", "optimizer")}
    resumed = Run(distributed, **options).load(state | shared, state["gradients"])
    return same_bits(straight, resumed.train(end - at).weights())


def same_bits(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    """Return whether two models are the same to the last bit."""
    assert one.keys() == other.keys()
    return all(torch.equal(one[name], other[name]) for name in one)


def alone() -> DistributedContext:
    """Return the context of one rank."""
    return DistributedContext()
