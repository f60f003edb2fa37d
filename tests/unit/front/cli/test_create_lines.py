"""`det e create`: what one line submits, prints and returns."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from det_jupyter.config import parse_config
from det_jupyter.contract.messages import RoomForecast, TemplateView
from det_jupyter.errors import ConfigError
from det_jupyter.front.cli import connecting, create
from det_jupyter.front.cli.create import run_locally
from tests.unit.client.handles.test_experiment import Wired
from tests.unit.front.cli.conftest import Shell, Typed
from tests.unit.front.verbs.cluster_samples import agent, cluster, pool, slot
from tests.unit.view.view_samples import experiment, trial

CONFIG: dict[str, Any] = {
    "name": "digits",
    "entrypoint": "model:Digits",
    "hyperparameters": {"global_batch_size": 8},
    "searcher": {"name": "single", "metric": "error", "max_length": {"batches": 10}},
}


class Submitting(Wired):
    """A master that takes experiments, in a folder with one, and what follows them."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        super().__init__(
            experiments=experiment(trial(), id=12),
            possible={"problem": None},
            base=TemplateView(name="base", config={}, created_at=0.0, updated_at=0.0),
            room=RoomForecast(
                folder="/d", free_bytes=1, checkpoint_bytes=9, num_checkpoints=1, like=3
            ),
            cluster=cluster(pool(agent(slot(0)))),
        )
        info = self.client.session.info.model_copy(update={"data_dir": str(folder.parent / "d")})
        self.client.session.info = info
        self.folder = folder
        self.followed: list[int] = []
        self.status = 0
        self._typed = Typed(capsys)

    def create(self, line: str) -> Shell:
        return self._typed(*f"e create {line}".split())

    def posted(self, path: str = "experiments") -> list[Any]:
        return [body for method, asked, body in self.asked if (method, asked) == ("POST", path)]

    def follow(self, client: Any, number: int) -> int:
        assert client is self.client
        self.followed.append(number)
        return self.status


@pytest.fixture
def wired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Submitting:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "model.py").write_text("class Digits: ...\ndef fit(): ...\n")
    (folder / "c.yaml").write_text(yaml.safe_dump(CONFIG))
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [*sys.path])
    wired = Submitting(folder, capsys)
    monkeypatch.setattr(connecting, "LazyClient", lambda connect, watching=None: wired.client)
    monkeypatch.setattr(create, "follow", wired.follow)
    return wired


def test_a_line_is_one_request(wired: Submitting) -> None:
    (wired.folder.parent / "more").write_text("1")
    shell = wired.create(
        "c.yaml . -i ../more --config searcher.max_length.batches=3 --name nets --template base "
        "--paused --queue-anyway"
    )
    assert (shell.status, wired.followed) == (0, []), shell.err
    [request] = wired.posted()
    assert request["config"] == CONFIG | {
        "name": "nets", "searcher": CONFIG["searcher"] | {"max_length": {"batches": 3}},
    }  # fmt: skip
    assert (request["is_paused"], request["queue_anyway"], request["template"]) == (
        True, True, "base",
    )  # fmt: skip
    assert request["capsule"]["context"]["num_files"] == 3
    assert request["is_quiet"] is False
    first, created, room = shell.out.splitlines()
    assert first.startswith("Preparing files to send to master... ")
    assert created == "Created experiment 12"
    assert room.startswith("Note: checkpoint_storage: 1 checkpoint of 9 B")
    assert shell.err.splitlines()[-1] == "It is paused; `det e activate 12` lets it run."


def test_without_a_folder_ranks_work_in_this_one(wired: Submitting) -> None:
    shell = wired.create("c.yaml")
    assert (shell.status, wired.followed) == (0, []), shell.err
    assert wired.posted()[0]["capsule"]["context"] is None
    assert shell.out.startswith("Created experiment 12\n")
    assert f"Note: ranks work in {wired.folder} itself" in shell.err


def test_a_followed_experiment_has_the_exit_status_of_its_end(
    wired: Submitting, monkeypatch: pytest.MonkeyPatch
) -> None:
    wired.status = 130
    monkeypatch.setattr("sys.stdin", io.StringIO(yaml.safe_dump(CONFIG)))
    assert wired.create("- . -f").status == 130
    assert wired.followed == [12]
    assert wired.posted()[0]["config"] == CONFIG
    assert wired.posted()[0]["notebook"] is None


def test_all_that_is_wrong_is_told_at_once_and_nothing_is_sent(wired: Submitting) -> None:
    (wired.folder / "c.yaml").write_text(yaml.safe_dump(CONFIG | {"max_restart": 1, "name": 7}))
    shell = wired.create("c.yaml . --config max_restarts=-1 --config odd --config searcher.name=x")
    assert shell.status == 1
    for part in ("--config", "odd", "c.yaml: line", "max_restart", "max_restarts", "searcher"):
        assert part in shell.err
    assert wired.posted() == []
    shell = wired.create("c.yaml --local")
    assert (shell.status, wired.posted()) == (2, [])
    assert "--local needs --test-mode" in shell.err
    (wired.folder / "c.yaml").write_text(yaml.safe_dump(CONFIG))
    assert wired.create("c.yaml --config odd").status == 1
    assert wired.posted() == []


@pytest.mark.parametrize(("status", "is_archived"), [(0, True), (1, True), (130, False)])
def test_a_test_trains_one_batch_and_is_archived(
    status: int, is_archived: bool, wired: Submitting
) -> None:
    wired.status = status
    shell = wired.create("c.yaml . --test-mode --queue-anyway")
    assert shell.status == status
    [request] = wired.posted()
    assert request["config"]["searcher"]["max_length"] == {"batches": 1}
    assert (request["is_quiet"], request["queue_anyway"]) == (True, True)
    assert request["capsule"]["context"]["num_files"] == 2
    assert wired.followed == [12]
    assert wired.posted("experiments/12/archive") == ([{}] if is_archived else [])
    assert "Experiment configuration validation succeeded! 🎉" in shell.out
    assert ("Model definition test succeeded! 🎉" in shell.out) is (status == 0)


def test_a_test_right_here_needs_no_master(
    wired: Submitting, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[Any] = []

    def try_out(trial: Any, config: Any, hparams: Any, *, batches: int) -> None:
        tried.append((trial.__name__, hparams["global_batch_size"], batches, Path.cwd()))

    monkeypatch.setitem(sys.modules, "det_jupyter.pytorch", SimpleNamespace(try_out=try_out))
    monkeypatch.delitem(sys.modules, "model", raising=False)
    (wired.folder.parent / "elsewhere").mkdir()
    monkeypatch.chdir(wired.folder.parent / "elsewhere")
    shell = wired.create(f"{wired.folder}/c.yaml {wired.folder} --test-mode --local")
    monkeypatch.delitem(sys.modules, "model")
    assert (shell.status, shell.out.splitlines()[-1]) == (0, "Model definition test succeeded! 🎉")
    assert tried == [("Digits", 8, 1, wired.folder)]
    assert (wired.posted(), wired.followed) == ([], [])


def test_functions_and_commands_run_right_here_as_far_as_they_can(
    wired: Submitting, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []

    def call(words: list[str], cwd: Path) -> int:
        calls.append((words, cwd))
        return 3

    monkeypatch.setattr("subprocess.call", call)
    monkeypatch.delitem(sys.modules, "model", raising=False)

    def run(entrypoint: Any) -> int:
        config = parse_config(CONFIG | {"entrypoint": entrypoint}, default_seed=0)
        return run_locally(config, wired.folder)

    assert [run("python3 -m model --lr 1"), run("python3 model.py a"), run(["make", "it"])] == [
        3
    ] * 3
    assert calls == [
        ([sys.executable, "-m", "model", "--lr", "1"], wired.folder),
        ([sys.executable, "model.py", "a"], wired.folder),
        (("make", "it"), wired.folder),
    ]
    with pytest.raises(ConfigError, match=r"fit is a function: `python -c 'from model import fit"):
        run("model:fit")
    monkeypatch.delitem(sys.modules, "model")
