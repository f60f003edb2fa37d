"""Code in a folder: classes, functions and scripts of modules, from a notebook and without one."""

from __future__ import annotations

from pathlib import Path

import pytest

from det_jupyter.client import Client, Experiment
from det_jupyter.contract.messages import LogQuery, State
from det_jupyter.errors import ConfigError, RankFailed
from tests.modules import modules_as_before
from tests.notebook_kernel import notebook
from tests.problems import said
from tests.processes import DetHome
from tests.scripts import create
from tests.trials import TRIAL_SOURCE

pytestmark = pytest.mark.e2e

FUNCTION = """
import helper

def main(core_context, hparams, info):
    rank = core_context.distributed.rank
    print("rank", rank, "reads", helper.word())
    if rank == 0:
        metrics = {"error": hparams["error"] + info.trial.trial_id * 0}
        core_context.train.report_validation_metrics(4, metrics)

def wrong(core_context):
    helper.fail()
"""
HELPER = """
def word():
    with open("data/word.txt") as file:
        return file.read()

def fail():
    raise ValueError("of the user")
"""
SEARCHER = "searcher: {name: single, metric: error, max_length: {batches: 4}}\nmax_restarts: 0\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    (folder / "data").mkdir(parents=True)
    (folder / "data" / "word.txt").write_text("seven")
    (folder / "helper.py").write_text(HELPER)
    (folder / "fits.py").write_text(FUNCTION)
    (folder / "model_def.py").write_text(TRIAL_SOURCE)
    return folder


def config(entrypoint: str, slots: int = 2, **hparams: float) -> str:
    listed = "".join(f"  {name}: {value}\n" for name, value in hparams.items())
    return (
        f"entrypoint: {entrypoint}\nresources: {{slots_per_trial: {slots}}}\n{SEARCHER}"
        f"hyperparameters:\n  global_batch_size: 16\n{listed}"
    )


def printed(client: Client, experiment: Experiment) -> str:
    return "".join(line.text for line in client.experiment_logs(experiment.id, LogQuery()).lines)


def test_a_class_and_a_function_of_modules_train_in_a_copy_of_the_folder(
    client: Client, folder: Path
) -> None:
    launched = "python3 -m det_jupyter.launch.torch_distributed --trial model_def:SmallTrial"
    trial = create(client, config(launched, pause_s=0), context=folder)
    function = create(client, config("fits:main", error=0.5), context=folder)
    (folder / "data" / "word.txt").write_text("eight")  # the copy was made already
    assert trial.wait() == State.COMPLETED
    assert function.wait() == State.COMPLETED
    with modules_as_before():
        loaded = trial.best_checkpoint().load()
        assert type(loaded).__name__ == "SmallTrial"
        assert type(loaded).__module__ == "model_def"
    assert function.view.trials[0].best_metric == 0.5
    text = printed(client, function)
    assert "rank 0 reads seven" in text
    assert "rank 1 reads seven" in text
    assert function.code()["fits.py"] == FUNCTION
    assert function.view.capsule.context is not None
    assert function.view.capsule.context.num_files == 4


def test_an_error_shows_the_file_and_line_of_the_module(client: Client, folder: Path) -> None:
    experiment = create(client, config("fits:wrong", 1), context=folder)
    with pytest.raises(RankFailed, match="ValueError: of the user"):
        experiment.wait()
    failure = experiment.view.trials[0].failure
    assert failure is not None
    assert failure.error == "ValueError: of the user"
    assert failure.where == "helper.py, line 7, in fail"
    assert "fits.py" in failure.traceback
    assert "entrypoint.py" not in failure.traceback


def test_an_experiment_is_made_paused_with_changes_and_a_folder_for_its_checkpoints(
    client: Client, folder: Path, tmp_path: Path
) -> None:
    experiment = create(
        client,
        config("fits:main", error=1) + "checkpoint_storage: {type: s3, bucket: models}\n",
        context=folder,
        changes={"name": "changed", "hyperparameters": {"error": 2}},
        checkpoint_storage=str(tmp_path / "kept"),
        is_paused=True,
    )
    assert experiment.state is State.PAUSED
    storage = experiment.config["checkpoint_storage"]
    assert (storage["type"], storage["container_path"]) == ("directory", str(tmp_path / "kept"))
    experiment.activate()
    assert experiment.wait() == State.COMPLETED
    assert (experiment.name, experiment.view.trials[0].best_metric) == ("changed", 2)


def test_text_template_context_and_code_are_refused_together(client: Client, folder: Path) -> None:
    (folder / "outside").symlink_to("/etc")
    with pytest.raises(ConfigError) as caught:
        create(
            client,
            config("fits:mian").replace("max_restarts", "max_restart"),
            context=folder,
            template="nothing",
            file="const.yaml",
        )
    text = str(caught.value)
    assert text.count("const.yaml: ") == 3
    assert len(said(caught.value.problems)) == 4
    assert "line 1: entrypoint: fits.py has no mian; did you mean main?" in text
    assert "line 4: max_restart: unknown key; did you mean max_restarts?" in text
    assert "--template: there is no template 'nothing'" in text
    assert f"links lead out of {folder}: outside → /etc; --follow-links" in text


def test_a_notebook_keeps_scripts_and_takes_a_folder_along(
    home: DetHome, client: Client, folder: Path, tmp_path: Path
) -> None:
    (folder / ".detignore").write_text("model_def.py\n")
    with notebook(tmp_path) as book:
        book.check("%load_ext det_jupyter")
        kept = book.check(
            "%%det_script run/script.py\n"
            "from det_jupyter import core\n"
            "with core.init() as context:\n"
            "    word = open('data/word.txt').read()\n"
            "    print('read', word)\n"
            "    context.train.report_validation_metrics(4, {'error': float(len(word))})\n"
        )
        assert "run/script.py: 5 lines" in kept.text
        refused = book.run("%%det_script broken.py\nif True\n")
        assert "broken.py, line 1: expected ':'" in str(refused.error)
        text = config("python3 run/script.py", 1)
        dry = book.check(f"%%det_experiment --context code --dry-run\n{text}")
        assert f"Context {folder}: 4 files, " in dry.text
        assert "stays behind: model_def.py" in dry.text
        assert "run/script.py            script of In [" in dry.text
        assert not (folder / "run").exists()
        book.check(f"%%det_experiment --context code --wait\n{text}")
        experiment = Experiment(client, int(book.check("print(experiment.id)").text))
        assert experiment.state is State.COMPLETED, printed(client, experiment)
        assert experiment.view.trials[0].best_metric == 5
        assert "read seven" in printed(client, experiment)
        assert "run/script.py" in experiment.code()

        local = book.run(f"%%det_experiment --local\n{text}").error
        assert "--local cannot run a command in this kernel" in str(local)
        own = book.check(
            "import det_jupyter\n"
            "def mine(core_context, hparams):\n"
            "    word = open('data/word.txt').read()\n"
            "    core_context.train.report_validation_metrics(1, {'error': hparams['error']})\n"
            "config = {'hyperparameters': {'error': 3}, 'searcher': {'name': 'single',\n"
            "          'metric': 'error', 'max_length': {'batches': 4}}}\n"
            "one = det_jupyter.submit(mine, config, context='code')\n"
            "two = det_jupyter.submit('fits:main', config, context='code', slots=2)\n"
            "print(one.id, two.id)"
        )
        ids = [int(word) for word in own.text.splitlines()[-1].split()]
    for number in ids:
        ended = Experiment(client, number)
        assert ended.wait() == State.COMPLETED
        assert ended.view.trials[0].best_metric == 3
