"""`--local` and `--preview`: what is tried in the kernel, or told, and never submitted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from det_jupyter.contract.messages import PreviewView
from det_jupyter.errors import ConfigError
from det_jupyter.front.notebook.complete.magic_parsers import cell_parser
from det_jupyter.front.notebook.handles import connection
from det_jupyter.front.notebook.submit import contexts, preview_and_local
from det_jupyter.front.notebook.submit.contexts import Script
from det_jupyter.front.notebook.submit.preview_and_local import preview, preview_cell, run_local
from det_jupyter.front.verbs.grammar import parse
from det_jupyter.pytorch import PyTorchTrial
from tests.problems import said
from tests.unit.client.handles.test_experiment import Wired
from tests.unit.front.notebook.handles.test_search_handles import preview_of

CONFIG = {
    "hyperparameters": {
        "global_batch_size": 8,
        "lr": {"type": "double", "minval": 1.0, "maxval": 2.0},
    },
    "searcher": {"name": "single", "metric": "error", "max_length": {"batches": 10}},
}
CELL = """entrypoint: {entrypoint}
hyperparameters: {{global_batch_size: 8, lr: {{type: double, minval: 1.0, maxval: 2.0}}}}
searcher: {{name: single, metric: error, max_length: {{batches: 10}}}}
environment: {{environment_variables: [DET_TEST_UNSET]}}
"""


class Net(PyTorchTrial):
    """A trial of the notebook."""

    def __init__(self, context: Any) -> None: ...
    def build_training_data_loader(self) -> Any: ...
    def build_validation_data_loader(self) -> Any: ...
    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any: ...
    def evaluate_batch(self, batch: Any, batch_idx: int) -> Any:
        return {"error": 1.0}


def fit(core_context: Any, hparams: Any) -> None: ...
def alone(hparams: Any, more: int = 3) -> None: ...


SHELL: Any = SimpleNamespace(
    user_ns={"Net": Net, "fit": fit, "alone": alone, "number": 3}, user_ns_hidden={}
)


def tried(entrypoint: str, words: str = "--local", more: str = "") -> Any:
    return run_local(CELL.format(entrypoint=entrypoint) + more, parse(cell_parser(), words), SHELL)


@pytest.mark.parametrize(("words", "batches"), [("--local", 5), ("--local 2", 2)])
def test_a_trial_trains_some_batches_in_this_kernel(
    words: str, batches: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls: list[Any] = []

    def try_out(trial: type, config: Any, hparams: dict[str, Any], *, batches: int) -> str:
        calls.append((trial, config.searcher.metric, hparams["global_batch_size"], batches))
        assert 1.0 <= hparams["lr"] <= 2.0
        return "the trial"

    monkeypatch.setattr("det_jupyter.pytorch.try_out", try_out)
    assert tried("Net", words) == "the trial"
    assert calls == [(Net, "error", 8, batches)]
    assert "DET_TEST_UNSET is not set in this notebook" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "call"),
    [
        (
            "fit",
            "call it, `with det_jupyter.core.init() as context: "
            "fit(core_context=context, hparams={",
        ),
        ("alone", "call it, alone(hparams={"),
    ],
)
def test_a_function_is_told_how_to_call(
    name: str, call: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tried(name) is None
    printed = capsys.readouterr().out.splitlines()[-1]
    assert printed.startswith(f"{name} is a function: {call}'global_batch_size': 8, 'lr': 1.")


@pytest.mark.parametrize(
    ("entrypoint", "problem"),
    [
        ("number", "'number' is of type int, expected a class or a function"),
        ("model:nets.Digits",
         "--local tries classes of this notebook; import it, `from model import nets`, and write "
         "`entrypoint: nets`"),
        ("script.part:Digits",
         "--local tries classes of this notebook; run the script's code in a cell without "
         "%%det_script, and write `entrypoint: Digits`"),
        ("python3 -m tool --lr 'a b'", "run it beside it: `!python3 -m tool --lr 'a b'`"),
        ("python3 'my train.py'", "run it beside it: `!python3 'my train.py'`"),
        ("python3 train.py 1", "run it beside it: `!python3 train.py 1`"),
        ("make it && ls", "run it beside it: `!make it && ls`"),
        ("make it", "run it beside it: `!make it`"),
        ("[make, 'it now']", "run it beside it: `!make 'it now'`"),
    ],
)  # fmt: skip
def test_what_cannot_run_in_the_kernel_is_told_how_it_can(
    entrypoint: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(contexts.SCRIPTS, "script/part.py", Script("", "In [1]"))
    with pytest.raises(ConfigError) as caught:
        tried(entrypoint)
    [found] = said(caught.value.problems)
    assert found.startswith("line 2: entrypoint: ")
    assert found.endswith(problem)


def test_all_problems_of_a_cell_are_told_together() -> None:
    with pytest.raises(ConfigError) as caught:
        tried("Nett", more="max_restart: 1\n")
    assert [each.partition(":")[0] for each in said(caught.value.problems)] == ["line 2", "line 6"]
    with pytest.raises(ConfigError) as caught:
        tried("[3]")
    assert all("entrypoint" in each for each in said(caught.value.problems))


@pytest.fixture
def wired(monkeypatch: pytest.MonkeyPatch) -> Wired:
    wired = Wired(preview=preview_of(notices=["it is short"]))
    monkeypatch.setattr(connection, "client", lambda: wired.client)
    return wired


@pytest.mark.parametrize("config", [CONFIG, "searcher: {name: single}\n"])
def test_a_preview_is_asked_of_the_master(config: Any, wired: Wired) -> None:
    shown = preview(config, template="base", seconds_per_batch=0.5)
    assert isinstance(shown.view, PreviewView)
    assert repr(shown).startswith("adaptive_asha: 16 trials, judged by error")
    assert shown._repr_html_().startswith("<div><p><b>adaptive_asha: 16 trials")
    [(_, path, body)] = wired.asked
    expected = config if isinstance(config, dict) else {"searcher": {"name": "single"}}
    assert (path, body) == (
        "preview", {"config": expected, "template": "base", "seconds_per_batch": 0.5},
    )  # fmt: skip


def test_an_estimate_has_the_class_of_this_program(
    wired: Wired, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def prepare(draft: Any, caller: Any) -> Any:
        asked.append((draft.merged()["entrypoint"], caller.names["Net"], caller.is_call))
        return SimpleNamespace(config="config"), "request"

    def estimated(client: Any, draft: Any, *given: Any) -> PreviewView:
        asked.append(given)
        return preview_of()

    monkeypatch.setattr(preview_and_local, "get_ipython", lambda: SHELL)
    monkeypatch.setattr(preview_and_local, "prepare_request", prepare)
    monkeypatch.setattr(preview_and_local, "preview_with_estimates", estimated)
    shown = preview({**CONFIG, "entrypoint": "Net"}, seconds_per_batch=2, estimate=True)
    assert shown.view.num_trials == 16
    assert asked == [("Net", Net, True), ("config", "request", 2)]


def test_what_is_no_configuration_is_not_sent(wired: Wired) -> None:
    with pytest.raises(ConfigError, match="seconds_per_batch: got 0"):
        preview(CONFIG, seconds_per_batch=0)
    with pytest.raises(ConfigError):
        preview("searcher: [1\n")
    assert wired.asked == []


def test_the_preview_of_a_cell_has_its_notes(
    wired: Wired, capsys: pytest.CaptureFixture[str]
) -> None:
    options = parse(cell_parser(), "--preview --seconds-per-batch 2 --slots 3")
    names: dict[str, Any] = {"__name__": "__main__"}
    exec("def fit(core_context):\n    breakpoint()\n", names)
    shell: Any = SimpleNamespace(user_ns=names, user_ns_hidden={})
    shown = preview_cell(CELL.format(entrypoint="fit"), options, shell)
    assert shown.view.num_trials == 16
    body = wired.asked[-1][2]
    assert (body["seconds_per_batch"], body["config"]["resources"]) == (2, {"slots_per_trial": 3})
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert first == "Note: it is short"
    assert second.startswith("Note: fit: breakpoint() needs a terminal")
