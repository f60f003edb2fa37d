"""What a search has found: its best result, and its picture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from det_jupyter.client.client import Client
from det_jupyter.client.handle_text import hparams_text, varying
from det_jupyter.client.handles.trial import Trial
from det_jupyter.contract.messages import ExperimentView
from det_jupyter.contract.values.text import count, number
from det_jupyter.errors import Conflict, DetError, NotFound
from det_jupyter.view import ViewState
from det_jupyter.view.forms.parallel_svg import svg_parallel
from det_jupyter.view.forms.svg import as_file, as_image
from det_jupyter.view.forms.text_lines import MAX_KEPT
from det_jupyter.view.making.search_view import ranked


@dataclass(frozen=True, slots=True)
class BestResult:
    """The best value of the searcher's metric, and the trial that has it; prints as a line.

    Attributes:
        metric: The value.
        hparams: The trial's hyperparameters.
        trial: The trial.
    """

    metric: float
    hparams: Mapping[str, Any]
    trial: Trial
    _line: str

    def __repr__(self) -> str:
        return self._line


def best_result(view: ExperimentView, trial: Trial) -> BestResult:
    """Return the result of this trial, which is the best one of the view."""
    (best,) = (each for each in view.trials if each.id == trial.id)
    assert best.best_metric is not None
    texts = [f"{view.metric} {number(best.best_metric)}"]
    if chosen := hparams_text(best.hparams, varying(view)):
        texts.append(f"with {chosen}")
    return BestResult(
        best.best_metric, best.hparams, trial, f"{' '.join(texts)} (trial {best.id})"
    )


@dataclass(frozen=True, slots=True)
class SearchPicture:
    """A picture, which a notebook displays.

    Attributes:
        svg: It as SVG, without scripts, for light and dark pages.
        alt: What it shows, in words.
    """

    svg: str
    alt: str

    def save(self, path: str | Path) -> Path:
        """Write it to a file, replacing it; return its path.

        Raises:
            DetError: The file cannot be written, or its name does not end in .svg.
        """
        file = Path(path).expanduser()
        if file.suffix.lower() != ".svg":
            raise DetError(f"save: got {file}, expected the name of a file that ends in .svg")
        try:
            file.write_text(as_file(self.svg), encoding="utf-8")
        except OSError as error:
            raise DetError(f"{file}: cannot be written: {error.strerror or error}") from None
        return file

    def _repr_html_(self) -> str:
        return as_image(self.svg, self.alt)

    def __repr__(self) -> str:
        return f'{self.alt}; .save("search.svg") writes the picture'


def search_picture(client: Client, experiment_id: int) -> SearchPicture:
    """Return the picture of a search; see `Experiment.plot`."""
    found = client.document("experiment", experiment_id=experiment_id).fetch()
    search = cast(ViewState, found)["search"]
    if search is None:
        raise Conflict(f"experiment {experiment_id} is no search, so it has no picture of one")
    rows = ranked(search)[:MAX_KEPT]
    svg = svg_parallel(search, rows)
    if not svg:
        raise NotFound(
            f"experiment {experiment_id}: no trial has reported {search['metric']} yet, or no "
            "hyperparameter varies, so there is nothing to draw"
        )
    num_drawn = sum(row["best"] is not None for row in rows)
    names = ", ".join(axis["name"] for axis in search["axes"])
    return SearchPicture(svg, f"{names} and {search['metric']} of {count(num_drawn, 'trial')}")
