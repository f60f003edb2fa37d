"""The input of the rules: where a run's ranks are, and its measurements as means and shares."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import fmean, median

from det_jupyter.contract.messages.verdicts import CauseKind

# Other parts (callbacks, the rest, those of newer programs) are residual.
KIND_OF: Mapping[str, CauseKind] = {
    "dataloader_next": "input",
    "to_device": "transfer",
    "from_device": "transfer",
    "forward": "compute",
    "backward": "compute",
    "optimizer": "compute",
    "step_lr_schedulers": "compute",
    "exchange_wait": "uneven",
    "exchange_transfer": "communication",
    "average_training_metrics": "communication",
    "reduce_metrics": "communication",
    "checkpoint": "checkpoint",
    "validation": "validation",
}
PERIODIC: tuple[CauseKind, ...] = ("checkpoint", "validation")  # not part of every batch


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSite:
    """The agent and device of a rank."""

    agent_id: str
    gpu: str = ""  # UUID; empty on a CPU
    kind: str = "cpu"  # the name of its device
    other_processes: tuple[str, ...] = ()  # their commands, on its GPU


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The ranks' places and the configuration of a run."""

    allocation_id: str
    places: tuple[RankSite, ...]  # by rank
    # If the run is on several computers: the interfaces over which the agents reach each other.
    interfaces: Mapping[str, str] = field(default_factory=dict)
    aggregation_frequency: int = 1
    gradient_compression: bool = False
    mixed_precision: bool = False
    average_training_metrics: bool = True
    is_compiled: bool = False
    has_tuned_fusion: bool = False
    min_checkpoint_period: str = ""  # such as "1 epochs"; empty: not configured
    min_validation_period: str = ""
    checkpoint_policy: str = "best"
    is_own_loop: bool = False  # not of a PyTorchTrial: the configuration does not change it

    @property
    def world_size(self) -> int:
        return len(self.places)

    @property
    def is_on_gpus(self) -> bool:
        return any(place.gpu for place in self.places)

    def agents(self) -> list[str]:
        return list(dict.fromkeys(place.agent_id for place in self.places))


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFacts:
    """The shares of a rank's time in the window, without checkpoints and validations."""

    rank: int
    batches: int
    batch_s: float  # mean time of a batch
    parts: Mapping[str, float]  # share by part
    waits: tuple[float, ...] = ()  # shares of `exchange_wait` in equal slices of the window

    @property
    def wait(self) -> float:
        """The share of time in which the rank waits for others."""
        return self.parts.get("exchange_wait", 0.0)

    def share(self, *kinds: CauseKind) -> float:
        """Return the summed share of the parts of these kinds."""
        found = (value for part, value in self.parts.items() if kind_of(part) in kinds)
        return sum(found, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Periodic:
    """Checkpoints or validations: their share of whole cycles, duration and period."""

    share: float
    seconds: float
    every_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryGrowth:
    """A time series of the memory of a rank or of its loader workers."""

    rank: int
    of: str  # `rank` or `workers`, as in the sources of samples
    name: str  # name of the measure
    memory: str  # the memory it is part of: a machine's or a GPU's
    at: tuple[float, ...]
    num_bytes: tuple[float, ...]
    free: tuple[float | None, ...]  # free bytes of `memory`, at each time

    @property
    def free_bytes(self) -> float | None:
        """The newest measured free bytes."""
        return next((free for free in reversed(self.free) if free is not None), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunMeasurements:
    """The measurements of a run in the window."""

    ranks: tuple[RankFacts, ...]
    # Of the rank on which checkpoints and validations take longest.
    periodic: Mapping[CauseKind, Periodic] = field(default_factory=dict)
    # Mean values of samples, by agent and source.
    means: Mapping[tuple[str, str], Mapping[str, float]] = field(default_factory=dict)
    growths: tuple[MemoryGrowth, ...] = ()  # over a longer time

    @property
    def batches(self) -> int:
        """The smallest number of batches of any rank."""
        return min((rank.batches for rank in self.ranks), default=0)

    @property
    def batch_s(self) -> float:
        """The median time of a batch, without checkpoints and validations."""
        return median(rank.batch_s for rank in self.ranks)

    def part(self, name: str) -> float:
        """Return the share of a part, the median over ranks."""
        return median(rank.parts.get(name, 0.0) for rank in self.ranks)

    def part_s(self, name: str) -> float:
        """Return the seconds of a part per batch, the median over ranks."""
        return median(rank.parts.get(name, 0.0) * rank.batch_s for rank in self.ranks)

    def host(self, agent_id: str, name: str) -> float | None:
        """Return the mean of a measure of a machine; None if it was not sampled."""
        return self.means.get((agent_id, "host"), {}).get(name)

    def gpu(self, place: RankSite, name: str) -> float | None:
        """Return the mean of a measure of a rank's GPU; None if it was not sampled."""
        return self.means.get((place.agent_id, f"gpu:{place.gpu}"), {}).get(name)

    def process(self, setting: Setting, rank: int, of: str, name: str) -> float | None:
        """Return the mean of a measure of a rank's process, or of its `workers`."""
        source = f"{of}:{setting.allocation_id}:{rank}"
        return self.means.get((setting.places[rank].agent_id, source), {}).get(name)


def kind_of(part: str) -> CauseKind:
    """Return the kind that a part of a batch belongs to."""
    return KIND_OF.get(part, "residual")


def mean_of(values: Iterable[float | None]) -> float | None:
    """Return the mean of the values that are not None; None without any."""
    given = [value for value in values if value is not None]
    return fmean(given) if given else None
