"""Searches as a user has them: previewed, watched, changed, trained on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from det_jupyter.client import Client, Experiment
from tests.notebook_kernel import Notebook, notebook
from tests.processes import DetHome, wait_until
from tests.trials import TRIAL_SOURCE, Gate

pytestmark = pytest.mark.e2e

ASHA = """%%det_experiment {options}
name: search
entrypoint: SmallTrial
hyperparameters:
  global_batch_size: 16
  pause_s: 0
  lr: {{type: log, base: 10, minval: -3, maxval: -1}}
searcher:
  name: async_halving
  metric: error
  max_trials: {max_trials}
  num_rungs: 2
  max_length: {{batches: 16}}
resources: {{slots_per_trial: 1}}
"""


def asha(*, options: str = "", max_trials: int = 8) -> str:
    return ASHA.format(options=options, max_trials=max_trials)


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Gate:
    """Return the gate of the notebook's trials; it is open, but for tests that close it."""
    gate = Gate(tmp_path_factory.mktemp("gate"), 2)
    gate.open()
    return gate


@pytest.fixture(scope="module")
def book(
    home: DetHome, gate: Gate, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Notebook]:
    """Return a notebook in which the trial is defined."""
    with notebook(tmp_path_factory.mktemp("book")) as book:
        book.check("%load_ext det_jupyter")
        book.check(gate.source())
        yield book


@pytest.fixture(scope="module")
def searched(book: Notebook, gate: Gate) -> str:
    """Run a search of 4 trials; return what the cell that waits for it shows."""
    with gate.closed():  # the cell returns at once
        book.check(asha(max_trials=4))
    return book.check("searched = experiment; searched.wait()").all_text


def value_of(book: Notebook, expression: str) -> str:
    return str(book.check(f"print({expression})").text).strip()


def test_a_preview_submits_nothing(book: Notebook, client: Client) -> None:
    before = len(client.experiments())
    (shown,) = book.check(asha(options="--preview --seconds-per-batch 0.5")).bundles
    text = shown["text/plain"]
    assert "async_halving: 8 trials, judged by error" in text
    rows = [line.split() for line in text.splitlines() if line.startswith(("4 b", "16 b"))]
    assert rows == [["4", "batches", "6"], ["16", "batches", "2"]]
    assert "Training in all: 56 batches" in text
    assert "On 4 slots, 4 trials at once: about " in text
    assert "(0.5 s a batch, as given)" in text
    assert "<svg" in shown["text/html"]
    assert len(client.experiments()) == before


def test_a_preview_of_something_wrong_names_the_lines(book: Notebook) -> None:
    outputs = book.run(asha(options="--preview").replace("num_rungs: 2", "num_rungs: zero"))
    assert outputs.error is not None
    assert "line 12: searcher.num_rungs: got 'zero'" in outputs.error


def test_a_search_runs_and_the_next_preview_knows_its_pace(book: Notebook, searched: str) -> None:
    assert "4/4 trials" in searched
    assert "best error=" in searched
    assert value_of(book, "len(searched.trials)") == "4"
    choice = book.run("searched.trial").error
    assert choice is not None
    assert "is a search: take best_trial() (now trial " in choice
    best = "searched.best_trial().view.best_metric"
    table = "[row['error'] for row in searched.trials_table()]"
    assert value_of(book, f"{best} == min({table}) == {table}[0]") == "True"
    listed = book.check(
        "get_ipython().run_line_magic('det_experiment', f'trials {searched.id}')"
    ).text
    columns = ["trial", "state", "error", "latest", "batches", "verdict", "lr"]
    assert listed.splitlines()[1].split() == columns
    assert len(listed.splitlines()) == 6
    # The live view of the search may still be drawing its end beside it.
    shown = book.check(asha(options="--preview")).all_text
    assert f"measured in experiment {value_of(book, 'searched.id')})" in shown
    unfinished = "%%det_experiment\nentrypoint: SmallTrial\nsearcher: {metric: "
    # Tab waits for no slow answer, and has it the next time.
    wait_until(lambda: "error" in book.complete(unfinished), "it offers the metric")


def test_a_running_search_refuses_what_cannot_be_gets_more_trials_and_one_of_them_is_killed(
    book: Notebook, client: Client, gate: Gate
) -> None:
    with gate.closed():
        change_and_kill(book, client)
    book.check("experiment.wait()")
    view = Experiment(client, int(value_of(book, "experiment.id"))).view
    assert len(view.trials) == 6
    assert view.trials[0].state == "CANCELED"
    refused = book.run("experiment.change_search(max_trials=9)")
    assert refused.error is not None
    assert "Conflict: " in refused.error


def change_and_kill(book: Notebook, client: Client) -> None:
    """Submit a search, give it more trials, and kill the first one."""
    book.check(asha(max_trials=4))
    experiment = Experiment(client, int(value_of(book, "experiment.id")))
    refused = book.run("experiment.change_search(max_trials=1, max_length={'batches': 2})")
    assert refused.error is not None
    assert "max_trials" in refused.error
    assert "max_length" in refused.error
    assert value_of(book, "experiment.config['searcher']['max_trials']") == "4"
    assert "nothing to change" in (book.run("experiment.change_search()").error or "")
    changed = book.check(
        "get_ipython().run_line_magic('det_experiment', "
        "f'change {experiment.id} --max-trials 6 --max-concurrent 2')"
    ).text
    assert "async_halving, 6 trials, to 16 batches, 2 at once" in changed
    assert value_of(book, "experiment.config['searcher']['max_trials']") == "6"
    wait_until(lambda: any(t.allocation for t in experiment.view.trials), "a trial runs")
    book.check("experiment.trials[0].kill()")


@pytest.mark.usefixtures("searched")
def test_the_winner_is_trained_on_with_its_hyperparameters(book: Notebook) -> None:
    book.check("best = searched.best_trial()\nlonger = best.train_to({'batches': 32})")
    book.check("assert longer.wait() == 'COMPLETED'")
    assert value_of(book, "type(longer).__name__") == "NotebookExperiment"
    assert value_of(book, "longer.trial.view.steps_completed") == "32"
    assert value_of(book, "longer.trial.hparams == best.hparams") == "True"
    assert value_of(book, "longer.trial.view.seed == best.view.seed") == "True"
    assert value_of(book, "longer.config['searcher']['name']") == "single"
    # It went on from the checkpoint: its own curve begins where the other one ended.
    first = "min(min(c.steps) for c in longer.curves() if c.group == 'batches')"
    assert int(value_of(book, first)) > 1
    refused = book.run("best.train_to({'parsecs': 2})")
    assert "length: got {'parsecs': 2}, expected exactly one of" in (refused.error or "")


def test_help_on_a_key(book: Notebook) -> None:
    text = book.check("%det_experiment ? searcher.divisor").text
    assert text.startswith("searcher.divisor  (")
    assert "default 4" in text
    assert "max_trials" in book.check("%det_experiment ? searcher").text
    assert "did you mean searcher.divisor?" in str(book.run("%det_experiment ? divisor").error)


ONE = """%%det_experiment --slots 1
name: {name}
entrypoint: SmallTrial
hyperparameters: {{global_batch_size: {batch_size}, pause_s: 0}}
searcher: {{name: single, metric: error, max_length: {{batches: 8}}}}
"""


@pytest.mark.usefixtures("searched")
def test_experiments_and_trials_are_compared(book: Notebook) -> None:
    book.check(ONE.format(name="first", batch_size=16))
    book.check("first = experiment; first.wait()")
    book.check(
        TRIAL_SOURCE.replace("nn.Linear(8, 16)", "nn.Linear(8, 32)").replace("16, 1", "32, 1")
    )
    book.check(ONE.format(name="wider", batch_size=32))
    book.check("wider = experiment; wider.wait()")
    shown = book.check(
        "import det_jupyter\ncompared = det_jupyter.compare(first.id, wider.id); compared"
    )
    # The live view of the second one may still be drawing its end beside it.
    [bundle] = [b for b in shown.bundles if b["text/plain"].startswith("Experiments ")]
    assert "data:image/svg" in bundle["text/html"]
    text = bundle["text/plain"]
    assert "-        model = nn.Sequential(nn.Linear(8, 16)" in text
    assert "+        model = nn.Sequential(nn.Linear(8, 32)" in text
    assert value_of(book, "compared.hyperparameters") == "{'global_batch_size': [16, 32]}"
    assert value_of(book, "compared.configuration['name']") == "['first', 'wider']"
    keys = "['name', 'reproducibility.experiment_seed']"
    assert value_of(book, "list(compared.configuration)") == keys
    assert value_of(book, "compared.versions") == "{}"
    used = (
        "all(0 < row['slot_hours'] < 0.1 and row['best'] is not None for row in compared.summary)"
    )
    assert value_of(book, used) == "True"
    charts = "{chart['title'] for chart in compared.state['charts']}"
    assert value_of(book, f"'error' in {charts}") == "True"
    line = "get_ipython().run_line_magic('det_experiment', 'compare %d {}' % first.id)"
    assert "alone, expected two" in book.run(line.format("")).text
    assert "there is no experiment 9999; " in (book.run(line.format("9999")).error or "")
    trials = book.check("print(searched.compare_trials())").text
    assert "global_batch_size" not in trials
    assert "lr" in trials
    needed = "Needs 20 finished trials; this search has 4."
    assert value_of(book, "searched.importance()") == needed
