"""Temporary experiments: whose code they can run, and how they differ from the original."""

from __future__ import annotations

from typing import Any, cast

import pytest

from det_jupyter.client import Client, Trial
from det_jupyter.client.diagnosing.derived import (
    ProgressLine,
    check_class,
    derive,
    remove,
)
from det_jupyter.client.handles.trial import choose_trial
from det_jupyter.contract.messages import CapturedName, ExperimentView, State
from det_jupyter.errors import ConfigError, Conflict, NotFound
from tests.unit.view.view_samples import experiment, trial


def of_entrypoint(name: str, kind: str = "") -> ExperimentView:
    view = experiment()
    captured = [CapturedName(name=name, cell="", type=kind, size_bytes=1)] if kind else []
    capsule = view.capsule.model_copy(update={"entrypoint": name, "captured": captured})
    return view.model_copy(update={"capsule": capsule})


@pytest.mark.parametrize(
    "view",
    [
        of_entrypoint("Trial", "class"),
        of_entrypoint("model_def:Trial"),
        of_entrypoint("python3 -m det_jupyter.launch.torch_distributed --trial model_def:Trial"),
        of_entrypoint("python3 -m determined.launch.torch_distributed --x 1 --trial a:Trial"),
    ],
)
def test_classes_and_imported_names_pass(view: ExperimentView) -> None:
    check_class(view, "diagnose", "why")


@pytest.mark.parametrize(
    ("view", "kind"),
    [
        (of_entrypoint("train", "function"), "function"),
        (of_entrypoint("python3 train.py"), "command"),
        (of_entrypoint("python3 -m det_jupyter.launch.torch_distributed train.py"), "command"),
        (of_entrypoint("python3 -m other.launch --trial model_def:Trial"), "command"),
    ],
)
def test_functions_and_commands_are_refused(view: ExperimentView, kind: str) -> None:
    with pytest.raises(ConfigError, match=f"diagnose: the entrypoint .* is a {kind}, .*: why"):
        check_class(view, "diagnose", "why")


def test_the_given_trial_is_chosen_or_the_best_or_the_first() -> None:
    view = experiment(trial(id=1), trial(id=2, best_metric=0.5), trial(id=3))

    class Master:
        def trial(self, trial_id: int) -> Any:
            return trial(id=trial_id)

    def handle(number: int) -> Trial:
        return Trial(cast("Client", Master()), number, experiment_of=str)

    assert choose_trial(view, handle(3)).id == 3
    assert choose_trial(view, None).id == 2
    assert choose_trial(experiment(trial(id=1), trial(id=2)), None).id == 1
    with pytest.raises(
        ConfigError, match=r"trial: got .*, expected a handle of one of experiment"
    ):
        choose_trial(view, handle(4))
    with pytest.raises(NotFound, match="has no trial yet"):
        choose_trial(experiment(), None)


def test_a_derived_experiment_is_quiet_and_searches_nothing() -> None:
    view = experiment()
    config = {
        "name": "digits",
        "searcher": {"name": "asha", "metric": "error", "smaller_is_better": True,
                     "max_trials": 9, "source_trial_id": 4},
        "environment": {"environment_variables": ["A=1"], "add_capabilities": []},
    }  # fmt: skip
    view = view.model_copy(update={"config": config})
    length = {"batches": 5}
    request = derive(
        view, {"name": "digits: try"}, hparams={"lr": 0.1}, max_length=length, variables=["B=2"]
    )
    assert (request.is_quiet, request.parent_id) == (True, view.id)
    assert request.config == {
        "name": "digits: try",
        "hyperparameters": {"lr": 0.1},
        "searcher": {"name": "single", "max_length": length, "metric": "error",
                     "smaller_is_better": True, "source_trial_id": 4},
        "environment": {"environment_variables": ["A=1", "B=2"], "add_capabilities": []},
    }  # fmt: skip
    elastic = config | {"resources": {"slots_per_trial": {"min": 2, "max": 8}, "priority": 5}}
    view = view.model_copy(update={"config": elastic})
    assert derive(view, {}, hparams={}, max_length=length).config["resources"] == {
        "slots_per_trial": 2, "priority": 5,
    }  # fmt: skip
    plain = derive(view, {}, hparams={}, max_length=length, sources=False)
    assert "source_trial_id" not in plain.config["searcher"]


def test_what_cannot_be_deleted_is_printed_and_not_raised(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Run:
        id = 7

        def delete(self, *, ask: bool) -> None:
            raise Conflict("its checkpoint is in use")

    class Master:
        def experiment(self, experiment_id: int) -> ExperimentView:
            return experiment(state=State.COMPLETED)

    remove(cast("Client", Master()), [cast("Any", Run())], "diagnose")
    told = "diagnose: its runs are not all deleted: its checkpoint is in use\n"
    assert capsys.readouterr().err == told


def test_a_line_is_rewritten_only_if_it_changes_and_is_erased(
    capsys: pytest.CaptureFixture[str],
) -> None:
    line = ProgressLine()
    line.close()
    line.show("50 batches")
    line.show("50 batches")
    line.show("done")
    assert capsys.readouterr().out == "\r50 batches\rdone      "
    line.close()
    line.close()
    assert capsys.readouterr().out == "\r    \r"
