"""The documents of the registry: `models` and `model`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from det_jupyter.contract.documents.patches import Document, plain
from det_jupyter.contract.messages import ModelView
from det_jupyter.errors import NotFound
from det_jupyter.reader.replica import News, Replica
from det_jupyter.view.making.models import build_model, build_models


class ModelsSource:
    """Makes a document of all models, by `build`."""

    period_s = 0.25
    max_age_s: float | None = None

    def __init__(self, replica: Replica, build: Callable[[list[ModelView]], Any]) -> None:
        self._replica = replica
        self._build = build
        self._experiments: set[int] = set()  # that versions come from: they have names and metrics

    def start(self, mark_stale: Callable[[], None]) -> Callable[[], None]:
        def on_news(news: News) -> None:
            if news.models or not self._experiments.isdisjoint(news.experiments):
                mark_stale()

        return self._replica.listeners.add(on_news)

    def make(self) -> Document | None:
        with self._replica.viewing() as views:
            models = views.models()
        self._experiments = {
            version.checkpoint.experiment_id for model in models for version in model.versions
        }
        document: Document = plain(self._build(models))
        return document


def models_source(replica: Replica) -> ModelsSource:
    return ModelsSource(replica, build_models)


def model_source(replica: Replica, number: int) -> ModelsSource:
    """Return the source of `model`, which ends when the model is deleted."""

    def build(models: list[ModelView]) -> Any:
        found = next((model for model in models if model.id == number), None)
        if found is None:
            raise NotFound("there is no such model; it may have been deleted")
        return build_model(found)

    return ModelsSource(replica, build)
