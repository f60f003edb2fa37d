"""All search methods. A new method is a file beside this one, and an entry here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, get_args, get_origin

from pydantic import Field

from det_jupyter.searcher.adaptive_asha import AdaptiveAshaSearcher
from det_jupyter.searcher.async_halving import AsyncHalvingSearcher
from det_jupyter.searcher.full_length import RandomSearcher, SingleSearcher
from det_jupyter.searcher.grid import GridSearcher
from det_jupyter.searcher.optuna import OptunaSearcher
from det_jupyter.searcher.searcher_section import SearcherSection

Searcher = Annotated[
    SingleSearcher
    | RandomSearcher
    | GridSearcher
    | AsyncHalvingSearcher
    | AdaptiveAshaSearcher
    | OptunaSearcher,
    Field(discriminator="name"),
]
SECTIONS: Mapping[str, type[SearcherSection]] = {
    get_args(section.model_fields["name"].annotation)[0]: section
    for section in get_args(get_args(Searcher)[0])
}
# Paths of the fields whose keys the user chooses, such as the arguments of a sampler.
FREE_FIELDS = tuple(
    f"searcher.{name}"
    for section in SECTIONS.values()
    for name, info in section.model_fields.items()
    if get_origin(info.annotation) is dict
)


def find_section(searcher: Mapping[str, Any]) -> type[SearcherSection] | None:
    """Return the section class of the method that the section names; None if there is none."""
    name = searcher.get("name")
    return SECTIONS.get(name) if isinstance(name, str) else None
