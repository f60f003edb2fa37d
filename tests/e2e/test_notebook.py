"""The main job as a user does it: cells in real kernels. The quickstart: test_readme_install."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from det_jupyter.client import Client, Experiment
from det_jupyter.errors import Conflict
from det_jupyter.view.forms.notebook_output import EXPERIMENT_MIME
from tests.notebook_kernel import Notebook, notebook, run_notebook, text_of
from tests.processes import DetHome, processes_of, wait_until
from tests.trials import LONG, TRIAL_SOURCE, Gate, slow, small_config, submit, wait_for_steps

pytestmark = pytest.mark.e2e

CELL = """%%det_experiment {options}
name: small
entrypoint: SmallTrial
hyperparameters: {{global_batch_size: 16, pause_s: {pause_s}}}
searcher: {{name: single, metric: error, max_length: {{batches: {batches}}}}}
resources: {{slots_per_trial: {slots}}}
"""


def cell(*, options: str = "", pause_s: float = 0.0, batches: int = 8, slots: int = 2) -> str:
    return CELL.format(options=options, pause_s=pause_s, batches=batches, slots=slots)


@pytest.fixture(scope="module")
def book(home: DetHome, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebook]:
    """Return a notebook in which the trial is defined."""
    with notebook(tmp_path_factory.mktemp("book")) as book:
        book.check("%load_ext det_jupyter")
        book.check(TRIAL_SOURCE)
        home.client().session.close()  # the master is up
        yield book


@pytest.mark.long
def test_search_notebook_runs_and_measures_what_asha_saved(
    home: DetHome, client: Client, examples: Path, tmp_path: Path
) -> None:
    document, text = run_notebook(examples / "search.ipynb", tmp_path)
    assert "ASHA trained" in text
    texts = [text_of(output) for cell in document.cells for output in cell.get("outputs", [])]
    assert any("train for" in text and "bracket 2" in text for text in texts), "the preview"
    asha, random, wide, longer = (client.experiment(e.id) for e in client.experiments()[-4:])
    assert [view.state for view in (asha, random, wide, longer)] == ["COMPLETED"] * 4
    assert asha.template == random.template == "digits-search"
    assert wide.config["resources"]["slots_per_trial"] == 2
    assert longer.trials[0].steps_completed > max(t.steps_completed for t in wide.trials)


def test_a_kernel_of_the_tests_is_known_and_ends_with_what_it_was_forked_from(
    book: Notebook, home: DetHome
) -> None:
    parent, own = book.check(
        "import os\nfrom ipykernel.kernelapp import IPKernelApp\n"
        "print(IPKernelApp.instance().poller.parent_pid - os.getppid(), os.getpid())"
    ).text.split()
    assert parent == "0"
    assert int(own) in [process.pid for process in processes_of(home.path)]


def test_the_cell_returns_at_once_with_a_handle(book: Notebook) -> None:
    outputs = book.check(cell(pause_s=0.2, batches=4000))
    assert "small" in outputs.all_text
    assert book.check("print(type(experiment).__name__)").text == "NotebookExperiment\n"
    assert book.check("print(experiment.state)").text == "ACTIVE\n"
    book.check("experiment.kill()")


def test_a_button_is_obeyed_while_a_cell_runs(
    book: Notebook, client: Client, tmp_path: Path
) -> None:
    book.check("import os; os.environ['JPY_SESSION_NAME'] = 'book.ipynb'")  # as JupyterLab does
    book.check(cell(pause_s=0.2, batches=4000))
    book.check("from det_jupyter.front.notebook.handles.experiment_handles import live_view")
    comm_id = book.check("print(live_view(experiment.id)._widget.own_id)").text.strip()
    subshell_id = book.new_subshell()
    book.check("import time; time.sleep(1)")  # the view's own messages come in between
    over = tmp_path / "over"
    book.start(f"while not os.path.exists({str(over)!r}): time.sleep(0.05)")
    book.press(comm_id, "pause", subshell_id)
    wait_until(lambda: client.experiments()[-1].state == "PAUSED", "it is paused")
    over.touch()
    book.check("del os.environ['JPY_SESSION_NAME']; experiment.kill()")


def test_waiting_shows_progress_and_a_picture_and_gives_the_trained_model(book: Notebook) -> None:
    book.check(cell())
    outputs = book.check("experiment.wait()")
    assert "100%" in outputs.all_text
    # No output has a widget, which could outlive its kernel.
    book.check("import time; time.sleep(1)")  # the first output gets its last picture
    for line in ("experiment", "experiment.show()"):
        (shown,) = book.check(line).bundles
        assert sorted(shown) == [EXPERIMENT_MIME, "text/html", "text/plain"]
        assert shown["text/html"].startswith("<det-experiment key=")
        assert "data:image/svg+xml," in shown["text/html"]
    loaded = book.check("print(type(experiment.best_checkpoint().load()).__name__)")
    assert loaded.text == "SmallTrial\n"


def test_vs_code_gets_the_widget_in_the_output(book: Notebook) -> None:
    book.check("__vsc_ipynb_file__ = 'book.ipynb'")
    shown = book.check(cell()).bundles[0]
    assert "application/vnd.jupyter.widget-view+json" in shown
    book.check("experiment.kill(); del __vsc_ipynb_file__")


def test_interrupting_the_wait_leaves_the_trial_alone(book: Notebook, client: Client) -> None:
    book.check(cell(pause_s=0.2, batches=4000))
    experiment = Experiment(client, client.experiments()[-1].id)
    wait_for_steps(experiment, 1)
    book.check("import _thread, threading\nthreading.Timer(0.5, _thread.interrupt_main).start()")
    outputs = book.check("experiment.wait()")
    assert f"Experiment {experiment.id} goes on" in outputs.text
    assert experiment.state == "ACTIVE"
    experiment.kill()


def test_a_killed_notebook_kernel_changes_nothing_and_another_finds_the_experiment(
    client: Client, tmp_path: Path
) -> None:
    gate = Gate(tmp_path, 5)
    with notebook(tmp_path) as first:
        first.check("%load_ext det_jupyter")
        first.check(gate.source())
        first.check(cell(batches=20))
        experiment = Experiment(client, client.experiments()[-1].id)
        gate.wait(experiment)
        first.kill()
    assert experiment.state == "ACTIVE"
    with notebook(tmp_path) as second:
        second.check("%load_ext det_jupyter")
        listed = second.check("%det_experiment list").text
        assert any(line.startswith(f"{experiment.id} ") for line in listed.splitlines())
        second.check(f"import det_jupyter\nfound = det_jupyter.experiment({experiment.id})")
        gate.open()
        second.check("found.wait()")
        steps = second.check(
            "[c.steps for c in found.curves() if c.group == 'batches'][0] == list(range(1, 21))"
        )
        assert steps.bundles[-1]["text/plain"] == "True"
        # The class was defined in the notebook that is gone.
        loaded = second.check("print(type(found.best_checkpoint().load()).__name__)")
        assert loaded.text == "SmallTrial\n"


def test_two_notebooks_submitting_at_once_share_the_slots(
    home: DetHome, client: Client, tmp_path: Path
) -> None:
    length = {"name": "single", "metric": "error", "max_length": {"batches": 4}}
    gate = Gate(tmp_path, 2)
    first, second = (submit(client, small_config(searcher=length), gate.source()) for _ in "12")
    third = submit(client, small_config(searcher=length))
    assert third.view.trials[0].waiting_for is not None
    sentence = third.view.trials[0].waiting_for or ""
    assert "2" in sentence
    assert "small" in sentence or f"{first.id}" in sentence
    gate.open()
    for experiment in (first, second, third):
        assert experiment.wait() == "COMPLETED"


def test_looking_into_a_rank_while_it_trains(client: Client) -> None:
    experiment = submit(client, slow(0.1, searcher=LONG))
    wait_for_steps(experiment, 3)
    rank = wait_until(lambda: experiment.trial.ranks[1:], "rank 1 is up")[0]
    wait_until(lambda: Path(rank.connection_file).exists(), "its kernel has a connection file")
    before = rank.execute("batch_idx")
    assert isinstance(rank.execute("loss"), float)
    assert rank.execute("rank, world_size") == (1, 2)
    wait_until(lambda: rank.execute("batch_idx") > before, "it goes on training")
    seen = [rank.execute("batch_idx") for _ in range(20)]
    assert min(after - before for before, after in pairwise(seen)) < 5, "it does not wait for long"
    with pytest.raises(TypeError, match="execute: got 5, expected Python code as a string"):
        rank.execute(5)  # type: ignore[arg-type]
    with pytest.raises(Conflict, match=r"no result within 0\.5 s and was requested to interrupt"):
        rank.execute("import time; time.sleep(2)", timeout=0.5)
    with pytest.raises(Conflict, match="it is still busy with an earlier execute"):
        rank.execute("1", timeout=0.5)
    stacks = experiment.trial.stacks()
    assert set(stacks) == {0, 1}
    # Now and then they wait for a checkpoint to be written.
    wait_until(lambda: "train_batch" in experiment.trial.stacks()[1], "rank 1 is in train_batch")
    console = subprocess.run(
        [sys.executable, "-m", "jupyter_console", "--existing", rank.connection_file,
         "--simple-prompt"],
        input="6 * 7\n", capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "42" in console.stdout
    assert experiment.state == "ACTIVE"  # neither looking nor leaving ended it
    experiment.kill()
    experiment.wait()


def test_a_second_environment_works_beside_the_first(
    home: DetHome, client: Client, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(other)], check=True)
    packages = next((other / "lib").glob("python*/site-packages"))
    # It has no packages of its own but sees ours: another interpreter, made in a second.
    shared = [sysconfig.get_path("purelib"), str(Path(__file__).parents[2])]
    # Its trial trains no model: its fork server needs no compiler of torch ([m] 1.2 s CPU).
    hidden = "import sys; sys.modules['torch._dynamo'] = None"
    packages.joinpath("shared.pth").write_text("\n".join([hidden, *shared]))
    folder = tmp_path / "context"
    folder.mkdir()
    (folder / "model_def.py").write_text(
        "def main(core_context):\n"
        "    core_context.train.report_validation_metrics(1, {'error': 1.0})\n"
    )
    length = {"name": "single", "metric": "error", "max_length": {"batches": 1}}
    one = {"slots_per_trial": 1}
    config = yaml.safe_dump(
        small_config(entrypoint="model_def:main", searcher=length, resources=one)
    )
    script = (
        "from tests.scripts import *\nfrom det_jupyter.connection import connect\n"
        f"experiment = create(Client(connect()), {config!r}, context=Path({str(folder)!r}))\n"
        "print(experiment.wait(), experiment.view.python)"
    )
    python = other / "bin" / "python"
    answer = subprocess.run(
        [str(python), "-c", script], capture_output=True, text=True,
        cwd=Path(__file__).parents[2], check=False,
    )  # fmt: skip
    assert answer.stdout.split() == ["COMPLETED", str(python)], answer.stderr
    assert submit(client, small_config(searcher=length)).wait() == "COMPLETED"
