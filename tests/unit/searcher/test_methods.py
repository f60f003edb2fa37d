"""The table of search methods is enough: no other place lists their names."""

from __future__ import annotations

import ast
import re
from typing import Any

import pytest

from det_jupyter.config import ExperimentConfig, notices, parse_config
from det_jupyter.contract.values.lengths import Length
from det_jupyter.errors import ConfigError
from det_jupyter.searcher import Create, ExitReason, Search
from det_jupyter.searcher.methods import SECTIONS, find_section
from det_jupyter.searcher.preview import preview, sample_ranges
from det_jupyter.searcher.trials import Trials
from tests.rooms import modules_with, part_of, tree
from tests.unit.searcher.searcher_world import World, make_config

SPACE = {"lr": {"type": "double", "minval": 0, "maxval": 1, "count": 3}, "depth": 2}
VALUES: dict[str, Any] = {
    "metric": "error",
    "max_length": {"epochs": 4},
    "max_trials": 3,
    "num_rungs": 2,
}


def config_of(name: str) -> ExperimentConfig:
    """Return a configuration with what the method requires, and a length."""
    fields = SECTIONS[name].model_fields
    needed = {key for key, info in fields.items() if info.is_required()} | {"max_length"}
    return make_config(SPACE, **{key: VALUES[key] for key in needed - {"name"}}, name=name)


@pytest.mark.parametrize("name", SECTIONS)
class TestEveryMethod:
    def test_it_is_found_by_its_name(self, name: str) -> None:
        assert find_section({"name": name}) is SECTIONS[name]
        assert config_of(name).searcher.name == name

    def test_it_makes_its_first_trials_and_takes_their_end(self, name: str) -> None:
        searcher = config_of(name).searcher
        trials = Trials(SPACE, 0)
        method = searcher.make(trials)
        assert method.start()
        assert method.max_trials >= 1
        snapshot = method.snapshot()
        searcher.make(trials).restore(snapshot)
        search = Search(searcher, SPACE, 0)
        created = [action for action in search.start() if isinstance(action, Create)]
        for create in created:
            search.on_exited(create.index, ExitReason.COMPLETED)
        assert 0 <= search.progress <= 1

    def test_its_preview_has_as_many_trials_as_it_makes(self, name: str) -> None:
        config = config_of(name)
        found = preview(config.searcher, config.hyperparameters)
        assert found.unit == "epochs"
        assert found.num_trials == Search(config.searcher, SPACE, 0).view().max_trials
        assert 0 < found.least <= found.expected <= found.most <= found.full
        (lr,) = sample_ranges(config.searcher, SPACE, 0)
        assert lr.name == "lr"
        assert all(0 <= sample <= 1 for sample in lr.samples)

    def test_samples_are_those_of_the_first_trials_if_it_draws_them_itself(
        self, name: str
    ) -> None:
        config = config_of(name)
        world = World(config)
        drawn = config.searcher.sample(SPACE, 0, len(world.created))
        if not SECTIONS[name].is_exhaustive:
            assert drawn == [create.hparams for create in world.created]

    def test_a_value_to_choose_from_that_is_none_is_noticed_if_it_searches(
        self, name: str
    ) -> None:
        document: dict[str, Any] = config_of(name).to_document()
        found = notices(document | {"hyperparameters": {"width": [32, 64]}})
        assert any("to try each of its entries" in each for each in found) == (
            SECTIONS[name].is_search
        )

    def test_a_command_may_do_without_a_length_only_if_nothing_is_compared(
        self, name: str
    ) -> None:
        document: dict[str, Any] = config_of(name).to_document()
        document["entrypoint"] = "python3 train.py"
        document["searcher"] = {k: v for k, v in document["searcher"].items() if k != "max_length"}
        if SECTIONS[name].is_endless(document["searcher"]):
            assert parse_config(document).searcher.max_length == Length("batches", 1)
        else:
            with pytest.raises(ConfigError, match=r"searcher\.max_length: missing"):
                parse_config(document)


def test_a_name_of_no_method_has_no_section() -> None:
    assert [find_section({"name": name}) for name in ("nope", None, ["grid"])] == [None] * 3
    assert find_section({}) is None


def test_no_other_place_lists_the_names_of_methods() -> None:
    two = re.compile("(?s)({0}).*(?!\\1)({0})".format("|".join(f'"{name}"' for name in SECTIONS)))
    wrong = [
        f"{path}:{node.lineno}"
        for path in modules_with(two)
        if part_of(path) != "searcher"
        if path.name != "sweeping.py"  # a call has names of its own, such as asha and tpe
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Tuple | ast.List | ast.Set | ast.Dict)
        if len(_constants(node) & SECTIONS.keys()) > 1
    ]
    assert not wrong, "ask the section instead (searcher/searcher_section.py)"


def _constants(node: ast.Tuple | ast.List | ast.Set | ast.Dict) -> set[Any]:
    items = node.keys if isinstance(node, ast.Dict) else node.elts
    return {item.value for item in items if isinstance(item, ast.Constant)}
