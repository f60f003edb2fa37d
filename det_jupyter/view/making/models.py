"""Makes the documents of the registry of models. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from det_jupyter.contract.messages import ModelView, VersionView
from det_jupyter.contract.values.direction import Direction
from det_jupyter.contract.values.text import length, number, shortened
from det_jupyter.view.making.comparison_view import differing
from det_jupyter.view.making.experiment_facts import finite
from det_jupyter.view.making.results import value_text
from det_jupyter.view.model.models import ModelLine, ModelList, ModelState, VersionLine

_MOST_HPARAMS = 8  # columns
_LONGEST = 400  # characters of a description in the sidebar
_HOW_TO_REGISTER = (
    "No version yet: “Register…” beside a checkpoint of an experiment makes one, and so does "
    "`det_jupyter.model({name!r}).register_version(experiment.best_checkpoint())`."
)


def build_models(models: Iterable[ModelView]) -> ModelList:
    """Return the list of models, by name."""
    return ModelList(
        models=[_model_line(model) for model in sorted(models, key=lambda model: model.name)]
    )


def _model_line(model: ModelView) -> ModelLine:
    latest = model.versions[-1] if model.versions else None
    aliases = sorted(model.aliases.items(), key=lambda each: (-each[1], each[0]))
    return ModelLine(
        id=model.id,
        name=model.name,
        description=shortened(model.description, _LONGEST),
        labels=model.labels,
        is_archived=model.is_archived,
        latest="" if latest is None else f"version {latest.number}{_with_value(latest)}",
        aliases=[f"{alias}: {version}" for alias, version in aliases],
    )


def _with_value(version: VersionView) -> str:
    value = _value(version)
    return f" · {version.metric} {value}" if value else ""


def _value(version: VersionView) -> str:
    metric = finite(version.checkpoint.searcher_metric)
    return "" if metric is None else number(metric)


def build_model(model: ModelView) -> ModelState:
    """Return the page of a model."""
    rows = differing([version.hparams for version in model.versions])
    names = list(rows)[:_MOST_HPARAMS]
    best = _best_numbers(model.versions)
    lines = [
        _version_line(model, version, [value_text(rows[name][place]) for name in names], best)
        for place, version in enumerate(model.versions)
    ]
    return ModelState(
        id=model.id,
        name=model.name,
        description=model.description,
        notes=model.notes,
        labels=model.labels,
        metadata=_metadata(model.metadata),
        is_archived=model.is_archived,
        created_at=model.created_at,
        hparams=names,
        versions=lines[::-1],
        no_versions="" if lines else _HOW_TO_REGISTER.format(name=model.name),
    )


def _version_line(
    model: ModelView, version: VersionView, hparams: list[str], best: set[int]
) -> VersionLine:
    checkpoint, aliases = version.checkpoint, model.aliases_of(version.number)
    which = aliases[0] if aliases else version.number
    return VersionLine(
        number=version.number,
        name=version.name,
        comment=version.comment,
        notes=version.notes,
        labels=version.labels,
        aliases=aliases,
        metadata=_metadata(version.metadata),
        uuid=version.uuid,
        experiment_id=checkpoint.experiment_id,
        experiment=version.experiment,
        trial_id=checkpoint.trial_id,
        steps=length({"batches": checkpoint.steps_completed}),
        metric=version.metric,
        value=_value(version),
        is_best=version.number in best,
        hparams=hparams,
        size_bytes=checkpoint.size_bytes,
        is_kept=checkpoint.state == "COMPLETED",
        created_at=version.created_at,
        load=f"import det_jupyter\n\n"
        f"trained = det_jupyter.model({model.name!r}).version({which!r}).checkpoint.load()",
    )


def _best_numbers(versions: Sequence[VersionView]) -> set[int]:
    """Return the numbers of the best version by each metric that several have."""
    by_metric: dict[tuple[str, bool], list[VersionView]] = {}
    for version in versions:
        if _value(version):
            by_metric.setdefault((version.metric, version.smaller_is_better), []).append(version)
    best = set()
    for (_, smaller_is_better), measured in by_metric.items():
        loss = Direction.of(smaller_is_better=smaller_is_better).loss
        if len(measured) > 1:
            best.add(min(measured, key=lambda v: loss(v.checkpoint.searcher_metric)).number)
    return best


def _metadata(metadata: Mapping[str, Any]) -> list[str]:
    return [f"{name}: {value_text(value)}" for name, value in metadata.items()]
