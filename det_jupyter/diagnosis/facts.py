"""What the rules look at: where a run's ranks are, and what was measured, reduced."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import fmean, median

from det_jupyter.contract.messages.views import CauseKind

# A part that is not named (callbacks, the rest, a newer program's) is residual.
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
PERIODIC: tuple[CauseKind, ...] = ("checkpoint", "validation")  # not of every batch


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSite:
    """Where a rank is."""

    agent_id: str
    gpu: str = ""  # its UUID; "": it has none
    kind: str = "cpu"  # the name of its device
    strangers: tuple[str, ...] = ()  # commands of processes that are not ours on its GPU


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What is known of a run beforehand: its ranks' places, and its configuration."""

    allocation_id: str
    places: tuple[RankSite, ...]  # by rank
    aggregation_frequency: int = 1
    gradient_compression: bool = False
    mixed_precision: bool = False
    average_training_metrics: bool = True
    is_compiled: bool = False
    has_tuned_fusion: bool = False
    min_checkpoint_period: str = ""  # in words; "": only when it has to
    min_validation_period: str = ""
    checkpoint_policy: str = "best"

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
    """Where a rank's time went within the window, as shares of it without what is periodic."""

    rank: int
    batches: int
    batch_s: float  # of each
    parts: Mapping[str, float]  # share by part
    waits: tuple[float, ...] = ()  # shares of `exchange_wait` in equal slices of the window

    @property
    def wait(self) -> float:
        """The share in which it waits for the others."""
        return self.parts.get("exchange_wait", 0.0)

    def share(self, *kinds: CauseKind) -> float:
        """Return the share of the parts of these kinds."""
        found = (value for part, value in self.parts.items() if kind_of(part) in kinds)
        return sum(found, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Periodic:
    """What happens once in many batches: its share of whole cycles, and how long it takes."""

    share: float
    seconds: float
    every_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """The memory of some processes, or of their GPU, over time."""

    rank: int
    of: str  # `rank` or `workers`, as samples call it
    name: str  # what was measured
    memory: str  # which memory it is: of a machine, or of a GPU
    at: tuple[float, ...]
    num_bytes: tuple[float, ...]
    free: tuple[float | None, ...]  # how much was left of it, each time

    @property
    def free_bytes(self) -> float | None:
        """How much was left when it was last measured."""
        return next((free for free in reversed(self.free) if free is not None), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What was measured of a run in the recent past."""

    ranks: tuple[RankFacts, ...]
    # Checkpoints and validations, of the rank that they hold longest.
    periodic: Mapping[CauseKind, Periodic] = field(default_factory=dict)
    # Mean values of samples, by agent and source.
    means: Mapping[tuple[str, str], Mapping[str, float]] = field(default_factory=dict)
    growths: tuple[Growth, ...] = ()  # over a longer time

    @property
    def batches(self) -> int:
        """How many batches every rank trained at least."""
        return min((rank.batches for rank in self.ranks), default=0)

    @property
    def batch_s(self) -> float:
        """How long a batch takes, without what is periodic."""
        return median(rank.batch_s for rank in self.ranks)

    def part(self, name: str) -> float:
        """Return the share of a part, of the median rank."""
        return median(rank.parts.get(name, 0.0) for rank in self.ranks)

    def part_s(self, name: str) -> float:
        """Return how long a part of a batch takes, on the median rank."""
        return median(rank.parts.get(name, 0.0) * rank.batch_s for rank in self.ranks)

    def host(self, agent_id: str, name: str) -> float | None:
        """Return the mean of a measure of a machine, where it was sampled."""
        return self.means.get((agent_id, "host"), {}).get(name)

    def gpu(self, place: RankSite, name: str) -> float | None:
        """Return the mean of a measure of a rank's GPU, where it was sampled."""
        return self.means.get((place.agent_id, f"gpu:{place.gpu}"), {}).get(name)

    def process(self, setting: Setting, rank: int, of: str, name: str) -> float | None:
        """Return the mean of a measure of a rank's process, or of its `workers`."""
        source = f"{of}:{setting.allocation_id}:{rank}"
        return self.means.get((setting.places[rank].agent_id, source), {}).get(name)


def kind_of(part: str) -> CauseKind:
    return KIND_OF.get(part, "residual")


def mean_of(values: Iterable[float | None]) -> float | None:
    """Return the mean of those that are known; None if none is."""
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
