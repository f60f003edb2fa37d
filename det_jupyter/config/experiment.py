"""The experiment configuration as a tree of frozen sections, and `parse_config`, its only door.

`parse_config` takes the user's document and returns a complete configuration, or raises one
ConfigError that names every problem by its path. The names and defaults are Determined's; where
ours differ, the field says why.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    StrictBool,
    StrictStr,
    ValidationError,
)
from pydantic_core import PydanticCustomError

from det_jupyter.config.hyperparameters import find_problems
from det_jupyter.config.lengths import Length, parse_length
from det_jupyter.config.problems import describe
from det_jupyter.config.seeds import MAX_SEED
from det_jupyter.errors import ConfigError


def _refuse_lookalikes(value: Any) -> Any:
    """YAML has real numbers: a quoted "5" or a `true` in a number's place is a mistake."""
    if isinstance(value, (bool, str)):
        raise PydanticCustomError("number", "expected a number")
    return value


def _length(value: Any) -> Length:
    try:
        return parse_length(value)
    except ValueError as error:
        raise PydanticCustomError("length", "{reason}", {"reason": str(error)}) from None


def _positive_length(value: Any) -> Length:
    length = _length(value)
    if length.amount == 0:
        raise PydanticCustomError("length", "expected more than 0")
    return length


def _identifier(value: Any) -> Any:
    if not isinstance(value, str) or not value.isidentifier():
        raise PydanticCustomError(
            "entrypoint", "expected the name of a class defined in the notebook, such as MyTrial"
        )
    return value


def _title(value: Any) -> Any:
    if isinstance(value, str) and (not value.strip() or not value.isprintable()):
        raise PydanticCustomError("title", "expected one line of text that is not empty")
    if isinstance(value, str) and len(value) > MAX_TITLE:
        raise PydanticCustomError("title", "{reason}", {"reason": _TOO_LONG})
    return value


MAX_TITLE = 200
_TOO_LONG = f"expected at most {MAX_TITLE} characters"
Title = Annotated[StrictStr, BeforeValidator(_title)]
Int = Annotated[int, BeforeValidator(_refuse_lookalikes)]
LengthField = Annotated[
    Length,
    BeforeValidator(_length),
    PlainSerializer(lambda length: length.to_document()),
]


class Section(BaseModel):
    """Base of all sections: unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)


class Searcher(Section):
    """How trials are chosen, by which metric, and how long each trains."""

    name: Literal["single"]
    metric: Title
    max_length: Annotated[
        Length,
        BeforeValidator(_positive_length),
        PlainSerializer(lambda length: length.to_document()),
    ]
    smaller_is_better: StrictBool = True


class Resources(Section):
    """What a trial needs, and how urgent it is (1..99, lower is more urgent)."""

    slots_per_trial: Annotated[Int, Field(ge=1)] = 1
    priority: Annotated[Int, Field(ge=1, le=99)] = 42


class Reproducibility(Section):
    """The seed everything random derives from."""

    experiment_seed: Annotated[Int, Field(ge=0, le=MAX_SEED)]


class Optimizations(Section):
    """How gradients and metrics are exchanged."""

    aggregation_frequency: Annotated[Int, Field(ge=1)] = 1
    average_aggregated_gradients: StrictBool = True
    average_training_metrics: StrictBool = True


class CheckpointStorage(Section):
    """Where checkpoints go; without `host_path`, into det_jupyter's data folder."""

    type: Literal["shared_fs", "directory"] = "shared_fs"
    host_path: Annotated[StrictStr, Field(pattern="^/")] | None = None


class Environment(Section):
    """Environment variables of the ranks, each `NAME=value`."""

    environment_variables: list[
        Annotated[StrictStr, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*=")]
    ] = []


class ExperimentConfig(Section):
    """A complete configuration."""

    name: Title
    entrypoint: Annotated[str, BeforeValidator(_identifier)]
    searcher: Searcher
    hyperparameters: dict[str, Any] = {}
    resources: Resources = Resources()
    reproducibility: Reproducibility
    description: StrictStr = ""
    labels: list[StrictStr] = []
    data: dict[str, Any] = {}
    records_per_epoch: Annotated[Int, Field(ge=0)] = 0
    scheduling_unit: Annotated[Int, Field(ge=1)] = 100
    # Determined validates only at the end unless told otherwise. Given a length in epochs we
    # validate after each: a curve of one point helps nobody. `{batches: 0}`: only at the end.
    min_validation_period: LengthField
    min_checkpoint_period: LengthField = Length("batches", 0)
    perform_initial_validation: StrictBool = False
    checkpoint_policy: Literal["best", "all", "none"] = "best"
    checkpoint_storage: CheckpointStorage = CheckpointStorage()
    max_restarts: Annotated[Int, Field(ge=0)] = 5
    preemption_timeout: Annotated[Int, Field(ge=1)] = 3600
    optimizations: Optimizations = Optimizations()
    environment: Environment = Environment()

    @property
    def max_length(self) -> Length:
        """How long each trial trains."""
        return self.searcher.max_length

    def to_document(self) -> dict[str, Any]:
        """Return the effective document; `parse_config` of it gives an equal configuration."""
        return self.model_dump(mode="json")


def parse_config(
    document: Mapping[str, Any], *, default_seed: int | None = None
) -> ExperimentConfig:
    """Return the complete configuration that `document` describes.

    Args:
        document: What the user wrote. A null counts as absent (but for hyperparameters and data).
        default_seed: Fills `reproducibility.experiment_seed`, which is else required.

    Raises:
        ConfigError: One line for every problem, `path: got X, expected Y`.
    """
    filled = _fill_computed_defaults(_without_nulls(document), default_seed)
    problems: list[str] = []
    config: ExperimentConfig | None = None
    try:
        config = ExperimentConfig.model_validate(filled)
    except ValidationError as error:
        problems += describe(error, ExperimentConfig)
    problems += _find_infinities(filled, "")
    hparams = filled.get("hyperparameters", {})
    if isinstance(hparams, dict):
        problems += find_problems(hparams)
        problems += _find_batch_size_problems(hparams, filled)
    if problems or config is None:
        raise ConfigError(problems)
    return config


def _without_nulls(document: Mapping[str, Any]) -> dict[str, Any]:
    free_form = ("hyperparameters", "data")
    return {
        key: _without_nulls(value)
        if isinstance(value, Mapping) and key not in free_form
        else value
        for key, value in document.items()
        if value is not None
    }


def _fill_computed_defaults(document: dict[str, Any], default_seed: int | None) -> dict[str, Any]:
    """Fill the defaults that depend on other values; what is wrong there is found later."""
    filled = dict(document)
    if "name" not in filled:
        entrypoint = filled.get("entrypoint")
        if isinstance(entrypoint, str) and entrypoint.isidentifier():
            filled["name"] = entrypoint[:MAX_TITLE]
        else:
            filled["name"] = "experiment"
    if "min_validation_period" not in filled:
        searcher = filled.get("searcher")
        length = searcher.get("max_length") if isinstance(searcher, dict) else None
        in_epochs = isinstance(length, dict) and "epochs" in length
        filled["min_validation_period"] = {"epochs": 1} if in_epochs else {"batches": 0}
    reproducibility = filled.get("reproducibility", {})
    if default_seed is not None and isinstance(reproducibility, dict):
        filled["reproducibility"] = {"experiment_seed": default_seed} | reproducibility
    return filled


def _find_infinities(value: Any, path: str) -> Iterator[str]:
    """Yield a problem for each number that JSON has no word for: the document travels in it."""
    if isinstance(value, float) and not math.isfinite(value):
        yield f"{path}: got {value}, expected a finite number"
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _find_infinities(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _find_infinities(item, f"{path}[{index}]")


def _find_batch_size_problems(
    hparams: Mapping[str, Any], document: Mapping[str, Any]
) -> Iterator[str]:
    """Check the batch size against the raw document, so that it is reported with the rest."""
    path = "hyperparameters.global_batch_size"
    size = hparams.get("global_batch_size")
    resources = document.get("resources", {})
    slots = resources.get("slots_per_trial", 1) if isinstance(resources, dict) else 1
    if not isinstance(slots, int):
        slots = 1  # reported elsewhere
    if isinstance(size, dict):
        return  # drawn later; the trial's context checks the drawn value
    if size is None:
        if slots > 1:
            yield f"{path}: missing; give the batch size of all slots together"
        for where, length in _lengths(document):
            counted = length.unit == "epochs" and document.get("records_per_epoch")
            if length.unit == "records" or counted:
                yield f"{path}: missing; {where} is in {length.unit}, which needs it"
    elif isinstance(size, bool) or not isinstance(size, int) or size < 1:
        yield f"{path}: got {size!r}, expected a whole number of at least 1"
    elif size < slots:
        yield f"{path}: got {size}, expected at least resources.slots_per_trial ({slots})"


def _lengths(document: Mapping[str, Any]) -> Iterator[tuple[str, Length]]:
    searcher = document.get("searcher")
    found = {
        "searcher.max_length": searcher.get("max_length") if isinstance(searcher, dict) else None,
        "min_validation_period": document.get("min_validation_period"),
        "min_checkpoint_period": document.get("min_checkpoint_period"),
    }
    for path, value in found.items():
        with suppress(ValueError):  # a malformed length is reported by its own field
            yield path, parse_length(value)
