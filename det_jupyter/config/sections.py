"""The sections of a configuration, except those of searchers and storages."""

from __future__ import annotations

import re
import warnings
from typing import Annotated, Any, ClassVar, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from det_jupyter.contract.schema.fields import (
    Bool,
    Count,
    Ignored,
    Int,
    Number,
    PositiveInt,
    Section,
    Text,
    Title,
)
from det_jupyter.contract.schema.seeds import MAX_SEED
from det_jupyter.contract.values.addresses import is_reference, is_url
from det_jupyter.contract.values.lengths import Length
from det_jupyter.contract.values.measures import MAX_SAMPLING_INTERVAL_S, MIN_SAMPLING_INTERVAL_S
from det_jupyter.contract.values.sizes import MAX_SLOTS

MIN_HANG_S, MAX_HANG_S = 4.0, 86_400.0  # shorter: a stall could not be told from a slow batch
MIN_WEIGHT, MAX_WEIGHT = 0.001, 1000  # beyond, shares are practically all or nothing
DEVICE_KINDS = ("cpu", "cuda", "rocm")


class SlotRange(Section):
    """The numbers of slots of an elastic trial."""

    min: Annotated[Int, Field(ge=1, le=MAX_SLOTS)] = 1
    """How many slots it needs to start, and keeps."""
    max: Annotated[Int, Field(ge=1, le=MAX_SLOTS)]
    """How many slots it gets at most, when they are free."""


def _shape_of_slots(value: Any) -> str:
    return "range" if isinstance(value, (dict, SlotRange)) else "number"


class Resources(Section):
    """What a trial needs, and how urgent it is."""

    slots_per_trial: Annotated[
        Annotated[Int, Field(ge=0, le=MAX_SLOTS), Tag("number")]
        | Annotated[SlotRange, Tag("range")],
        Discriminator(_shape_of_slots),
    ] = 1
    """How many ranks train a trial, each on a slot; 0: one, on no slot; a range: as are free."""
    resource_pool: Text = ""
    """The pool whose slots it gets; the default pool if not given."""
    is_single_node: Bool = False
    """Whether a trial must have all its slots on one agent."""
    priority: Annotated[Int, Field(ge=1, le=99)] | None = None
    """How urgent the experiment is; lower is more urgent. If not given, the pool's default: 42."""
    max_slots: Annotated[Int, Field(ge=0, le=MAX_SLOTS)] | None = None
    """The most slots that all trials of the experiment hold together."""
    weight: Annotated[Number, Field(ge=MIN_WEIGHT, le=MAX_WEIGHT)] = 1
    """The weight of the experiment's share of the slots, in pools with fair share."""
    native_parallel: Ignored = None
    shm_size: Ignored = None
    devices: Ignored = None
    agent_label: Ignored = None
    slots: Ignored = None

    @property
    def least_slots(self) -> int:
        """How many slots a trial needs to start."""
        given = self.slots_per_trial
        return given.min if isinstance(given, SlotRange) else given


class Reproducibility(Section):
    """Seeds of random numbers."""

    experiment_seed: Annotated[Int, Field(ge=0, le=MAX_SEED)]
    """The seed that hyperparameters and the seeds of trials derive from."""


_COMPRESSIONS = [False, True, "fp16", "bf16", "powersgd"]


def _compression(value: Any) -> Any:
    if isinstance(value, bool) or value in _COMPRESSIONS[2:]:
        return value
    raise PydanticCustomError("compression", "expected true (fp16), false, fp16, bf16 or powersgd")


def _backend(value: Any) -> Any:
    if isinstance(value, bool) or (isinstance(value, str) and value.strip()):
        return value
    raise PydanticCustomError(
        "backend", "expected true, false, or the name of a backend of torch.compile"
    )


class LargeBatch(Section):
    """Linear scaling of the learning rate with gradual warm-up (Goyal et al., 2017)."""

    base_batch_size: PositiveInt
    """The global batch size that the trial's learning rates are meant for."""
    warmup: Length = Length("epochs", 5)
    """How long learning rates take to grow from the trial's own to the scaled ones; 0: no time."""


class Optimizations(Section):
    """How gradients and metrics are exchanged among the ranks."""

    aggregation_frequency: PositiveInt = 1
    """Batches from one exchange of gradients, and step of the optimizer, to the next."""
    average_aggregated_gradients: Bool = True
    """Divide gradients that were summed over several batches by their number."""
    average_training_metrics: Bool = True
    """Report training metrics averaged over all ranks, not those of rank 0."""
    check_ranks: Literal["never", "report", "stop"] = "report"
    """What happens if ranks no longer hold the same parameters: a warning, or the trial fails."""
    gradient_compression: Annotated[
        bool | str, BeforeValidator(_compression), WithJsonSchema({"enum": _COMPRESSIONS})
    ] = False
    """Exchange gradients as 16-bit numbers (true is fp16), or as their low-rank approximations."""
    mixed_precision: Literal["O0", "O1", "O2", "O3", "fp16", "bf16"] = "O0"
    """Compute forward passes in 16 bits where that is safe; NVIDIA Apex's O1 to O3 mean fp16."""
    tensor_fusion_threshold: PositiveInt | None = None
    """Megabytes of gradients that are exchanged at a time; by default as torch does it: 25."""
    tensor_fusion_cycle_time: Count = 1
    """Milliseconds to wait for more gradients before an exchange."""
    auto_tune_tensor_fusion: Bool = False
    """Find tensor_fusion_threshold by trying sizes in the first batches."""
    grad_updates_size_file: Text | None = None
    """File that the sizes of the gradients are written to."""
    sharding: Literal["fsdp"] | None = None
    """Divide parameters, gradients and optimizer states among the ranks, for large models."""
    compile: Annotated[
        bool | str, BeforeValidator(_backend), WithJsonSchema({"type": ["boolean", "string"]})
    ] = False
    """Compile the models with torch.compile: true, or the name of one of its backends."""
    large_batch: LargeBatch | None = None
    """Scale learning rates with the batch size, after a gradual warm-up."""
    recover_on_gpus: Bool = False
    """Save the last step when a rank on a GPU is killed; waits at each step. Not yet tried."""


class Profiling(Section):
    """System metrics and timings of a trial."""

    enabled: Bool | None = None
    """true: raw timings of each batch too; false: neither timings nor system metrics."""
    begin_on_batch: Count = 0
    """The first batch with raw timings."""
    end_after_batch: Count | None = None
    """The last batch with raw timings."""
    sync_timings: Bool = True
    """Wait for the GPU after each part of those batches, as Determined did; slows the training."""
    sampling_interval: Annotated[
        Number, Field(ge=MIN_SAMPLING_INTERVAL_S, le=MAX_SAMPLING_INTERVAL_S)
    ] = 1.0
    """Seconds between two samples of the machine; of all trials on it, the shortest counts."""


def _after(value: float) -> float:
    if 0 < value < MIN_HANG_S:
        raise PydanticCustomError(
            "after", "expected at least {least}, or 0: never", {"least": f"{MIN_HANG_S:g}"}
        )
    return value


class Hang(Section):
    """What happens when a trial's ranks make no progress and none of them moves."""

    after_s: Annotated[Number, Field(ge=0, le=MAX_HANG_S), AfterValidator(_after)] = 6
    """Seconds without movement, while others wait for a rank, until it is reported; 0: never."""
    action: Literal["tell", "dump", "restart", "kill"] = "tell"
    """Show the hang; also keep files with stacks; start the trial again; or let it fail."""


def _variables(value: Any) -> Any:
    """Check the kinds of devices; equal lists for all kinds become one list."""
    if not isinstance(value, dict):
        return value
    if strange := [key for key in value if key not in DEVICE_KINDS]:
        reason = "expected a list of NAME=value, or lists by cpu, cuda and rocm"
        raise PydanticCustomError("kinds", "{reason}", {"reason": f"{reason}, not {strange[0]}"})
    by_kind = {kind: value[kind] for kind in DEVICE_KINDS if kind in value}
    lists = [by_kind.get(kind) or [] for kind in DEVICE_KINDS]
    return lists[0] if all(lines == lists[0] for lines in lists) else by_kind


def _variable(value: Any) -> Any:
    if isinstance(value, str) and _VARIABLE.match(value):
        return value
    raise PydanticCustomError("variable", "expected NAME=value, or NAME to send its present value")


def _shape_of_variables(value: Any) -> str:
    return "kinds" if isinstance(value, dict) else "list"


_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(=[^\0]*)?\Z")
Variable = Annotated[str, BeforeValidator(_variable)]


class Environment(Section):
    """The environment of the ranks: its variables."""

    environment_variables: Annotated[
        Annotated[list[Variable], Tag("list")]
        | Annotated[dict[str, list[Variable]], Tag("kinds")],
        Discriminator(_shape_of_variables),
        BeforeValidator(_variables),
    ] = []
    """`NAME=value`, or `NAME` for the notebook's own value; a list, or lists by cpu and cuda."""
    image: Ignored = None
    ports: Ignored = None
    proxy_ports: Ignored = None
    force_pull_image: Ignored = None
    registry_auth: Ignored = None
    add_capabilities: Ignored = None
    drop_capabilities: Ignored = None
    pod_spec: Ignored = None


def _pattern(value: str) -> str:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # FutureWarning about set operations
            re.compile(value)
    except (re.error, RecursionError, OverflowError) as error:
        raise PydanticCustomError(
            "pattern", "{reason}", {"reason": f"expected a regular expression ({error})"}
        ) from None
    return value


class LogPolicy(Section):
    """What to do when a rank prints a line that matches a pattern."""

    name: Text | None = None
    """Name of the policy; an entry with nothing else disables that policy of the template."""
    pattern: Annotated[Text, Field(max_length=10_000), AfterValidator(_pattern)] | None = None
    """Regular expression that the lines of the log are compared with."""
    action: Literal["cancel_retries", "exclude_node"] | None = None
    """What to do when a line matches."""


class RetentionPolicy(Section):
    """How long logs are kept."""

    log_retention_days: Annotated[Int, Field(ge=-1, le=32767)] | None = None
    """Days that logs are kept; -1: for ever."""


def _address(value: Any) -> Any:
    if isinstance(value, str) and (is_reference(value) or is_url(value)):
        return value
    raise PydanticCustomError(
        "address", "expected ${NAME} of a variable, file:/PATH of a file, or https://..."
    )


def _name(value: str) -> str:
    if "://" in value:  # names are shown
        raise PydanticCustomError(
            "name", "expected a name; an address goes below slack, ntfy or webhook"
        )
    return value


def _topic(value: str) -> str:
    if is_url(value) and not urlsplit(value).path.strip("/"):
        raise PydanticCustomError(
            "address", "expected the address with its topic, https://HOST/TOPIC"
        )
    return value


Address = Annotated[str, BeforeValidator(_address)]
Subject = Literal["failed", "hang", "nan", "disk", "recovered", "ended"]  # AlertKind's values


class Alert(Section):
    """A destination of alerts, and the subjects that it gets."""

    name: Annotated[Title, AfterValidator(_name)] | None = None
    """A name that you choose. Without an address here, the entry of this name in alerts.yaml."""
    slack: Address | None = None
    """Address of a webhook that accepts Slack's form, as Mattermost's do."""
    ntfy: Annotated[Address, AfterValidator(_topic)] | None = None
    """Address of a topic of ntfy."""
    webhook: Address | None = None
    """Address that gets the alert as JSON."""
    on: list[Subject] | None = None
    """The subjects: all if not given, none if empty."""

    WAYS: ClassVar[tuple[str, ...]] = ("slack", "ntfy", "webhook")

    @property
    def way(self) -> str:
        """The field with its address or command; "": it has none."""
        return next((way for way in self.WAYS if getattr(self, way) is not None), "")

    @model_validator(mode="after")
    def _has_one_way(self) -> Self:
        given = [way for way in self.WAYS if getattr(self, way) is not None]
        if len(given) > 1 or not (given or self.name):
            reason = f"expected one of {', '.join(self.WAYS)}; or the name of one in alerts.yaml"
            raise PydanticCustomError("alert", "{reason}", {"reason": reason})
        return self
