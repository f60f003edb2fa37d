"""The experiment configuration as a tree of frozen sections.

Names and defaults are Determined's; the reference lists the defaults that differ. Keys that have a
meaning only on a cluster are Ignored. Defaults are made by `model_construct`, since validating
them would build each section once more.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field

from det_jupyter.config.sections import (
    Alert,
    Environment,
    Hang,
    LogPolicy,
    Optimizations,
    Profiling,
    Reproducibility,
    Resources,
    RetentionPolicy,
)
from det_jupyter.config.storages import CheckpointStorage, SharedFs
from det_jupyter.config.tracker_section import Tracker
from det_jupyter.contract.schema.fields import (
    Bool,
    Count,
    EntrypointValue,
    Ignored,
    PositiveInt,
    Section,
    Text,
    Title,
)
from det_jupyter.contract.values.lengths import Length
from det_jupyter.searcher.methods import Searcher


def _each_once(labels: list[str]) -> list[str]:
    return list(dict.fromkeys(labels))


class ExperimentConfig(Section):
    """A complete configuration."""

    # Its validator is built at import, unlike those of sections: ranks are forked after that.
    model_config = ConfigDict(defer_build=False)

    name: Title
    """Title of the experiment."""
    description: Text = ""
    """What the experiment is about."""
    labels: Annotated[list[Text], AfterValidator(_each_once)] = []
    """Words to find the experiment by."""
    entrypoint: EntrypointValue
    """A class or function of the notebook, one of a module (model_def:Trial), or a command."""
    hyperparameters: dict[str, Any] = {}
    """Constants, and ranges that a search draws from; global_batch_size counts all slots."""
    searcher: Searcher
    """How trials are chosen, by which metric they are judged, and how long they train."""
    resources: Resources = Resources.model_construct()
    """What a trial needs, and how urgent it is."""
    reproducibility: Reproducibility
    """Seeds of random numbers."""
    data: dict[str, Any] = {}
    """Values, usually about data, that the trial reads by context.get_data_config()."""
    records_per_epoch: Count = 0
    """Records in an epoch; 0: as many as the training data has."""
    scheduling_unit: PositiveInt = 100
    """Batches from one report of training metrics to the next."""
    # By default Determined validates only at the end. With a length in epochs we validate after
    # each epoch, since a curve of one point shows nothing. `{batches: 0}`: only at the end.
    min_validation_period: Length
    """How often a trial validates at least; 0: only when the search requires it."""
    min_checkpoint_period: Length = Length("batches", 0)
    """How often a trial saves its state at least; 0: only when that is necessary."""
    perform_initial_validation: Bool = False
    """Validate before the first batch too."""
    checkpoint_policy: Literal["best", "all", "none"] = "best"
    """Save after the validations that are the best so far, after all, or after none."""
    checkpoint_storage: CheckpointStorage = SharedFs.model_construct()
    """Where checkpoints go."""
    on_nan_loss: Literal["warn", "stop"] = "warn"
    """At the first loss that is NaN or infinite: warn and train on, or let the trial fail."""
    max_restarts: Count = 5
    """How often a trial that failed is tried again."""
    preemption_timeout: PositiveInt = 3600
    """Seconds that a trial has to save its state and leave, after it was requested to leave."""
    optimizations: Optimizations = Optimizations.model_construct()
    """How gradients and metrics are exchanged among the ranks."""
    profiling: Profiling = Profiling.model_construct()
    """System metrics and timings."""
    hang: Hang = Hang.model_construct()
    """What happens when a trial's ranks make no progress."""
    environment: Environment = Environment.model_construct()
    """The environment of the ranks: its variables."""
    log_policies: Annotated[list[LogPolicy], Field(max_length=100)] | None = None
    """What to do when a rank prints a line that matches a pattern."""
    alerts: Annotated[list[Alert], Field(max_length=20)] | None = None
    """Destinations of alerts, in addition to those in alerts.yaml."""
    trackers: Annotated[list[Tracker], Field(max_length=20)] | None = None
    """Services that get parameters, metrics and results, in addition to those in trackers.yaml."""
    retention_policy: RetentionPolicy | None = None
    """How long logs are kept."""
    workspace: Ignored = None
    project: Ignored = None
    bind_mounts: Ignored = None
    debug: Ignored = None
    integrations: Ignored = None
    slurm: Ignored = None
    pbs: Ignored = None
    security: Ignored = None
    tensorboard_storage: Ignored = None
    data_layer: Ignored = None
    internal: Ignored = None
    version: Ignored = None

    def to_document(self) -> dict[str, Any]:
        """Return the effective document; `parse_config` makes an equal configuration from it."""
        absent = {  # the ignored keys that are not given
            name: {key for key in section.ignored_keys() if getattr(section, key) is None}
            for name, section in self
            if isinstance(section, Section)
        }
        document = self.model_dump(mode="json", exclude=absent)
        return {key: value for key, value in document.items() if value is not None}
