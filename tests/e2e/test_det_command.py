"""`det` in a shell, with a real master: submits a folder, follows it, and steers it.

Most lines are run by forks of one process (tests/forks.py); one of each kind is started as a
shell does.
"""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import tarfile
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml

from det_jupyter.client import Client, Experiment
from det_jupyter.connection import find_master
from det_jupyter.contract.messages import ExperimentQuery
from tests.forks import Fork, ForkSource, fork_source
from tests.processes import DetHome, at_home, wait_until
from tests.trials import TRIAL_SOURCE, slow, small_config, wait_for_steps

pytestmark = pytest.mark.e2e

DET = [sys.executable, "-m", "det_jupyter"]
# What the lines load ([m] 0.1 instead of 0.6 s CPU for a line).
LOADED = (
    "det_jupyter.client.handles.experiment",
    "det_jupyter.front.cli.__main__",
    "det_jupyter.front.cli.connecting",
    "det_jupyter.front.cli.create",
    "det_jupyter.front.cli.shell_table",
    "det_jupyter.front.verbs.experiment_list",
    "det_jupyter.master.cli",
    "anyio._backends._asyncio",
    "h11",
    "httpcore",
    "statistics",
    "tqdm",
)


class Folder:
    """A folder with a trial and its configuration, and a shell in it."""

    def __init__(self, path: Path, source: ForkSource) -> None:
        self.path = path
        self._source = source
        trial = TRIAL_SOURCE.replace("        x, y = batch\n        loss",
                                      '        print("batch", batch_idx)\n        x, y = batch\n'
                                      "        loss")  # fmt: skip
        (path / "model_def.py").write_text(trial)
        length = {"name": "single", "metric": "error", "max_length": {"batches": 12}}
        self.write("config.yaml", small_config(entrypoint="model_def:SmallTrial", searcher=length,
                                               min_validation_period={"batches": 4}))  # fmt: skip
        self.write("slow.yaml", slow(0.3, entrypoint="model_def:SmallTrial", name="slow",
                                     searcher={"name": "single", "metric": "error",
                                               "max_length": {"batches": 3000}}))  # fmt: skip

    def write(self, name: str, config: dict[str, Any]) -> None:
        """Write a configuration."""
        (self.path / name).write_text(yaml.safe_dump(config))

    def det(self, line: str, *, status: int = 0) -> str:
        """Return what a line prints; it must end with this status."""
        outputs = [self.path.with_name(name) for name in ("stdout", "stderr")]
        ended = self.start(line, *outputs).wait()
        return self._said(ended, *(file.read_text() for file in outputs), status=status)

    def det_afresh(self, line: str, *, status: int = 0, **variables: str) -> str:
        """Return what a line prints, started as a shell with these variables does."""
        done = subprocess.run(
            [*DET, *line.split()], cwd=self.path, env=os.environ | variables,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        return self._said(done.returncode, done.stdout, done.stderr, status=status)

    def _said(self, ended: int, stdout: str, stderr: str, *, status: int) -> str:
        assert ended == status, stdout + stderr
        assert "Traceback" not in stderr
        return stdout if status == 0 else stderr

    def start(self, line: str, *outputs: Path) -> Fork:
        """Start a line, with files for its stdout and stderr."""
        for file in outputs:
            file.touch()
        return self._source.start(
            "det_jupyter.front.cli.__main__:main",
            argv=["det", *line.split()],
            folder=self.path,
            outputs=outputs,
        )


@pytest.fixture(scope="module")
def folder(home: DetHome, tmp_path_factory: pytest.TempPathFactory) -> Folder:
    path = tmp_path_factory.mktemp("shell") / "code"
    path.mkdir()
    return Folder(path, fork_source(*LOADED))


def number_of(said: str) -> int:
    [line] = [line for line in said.splitlines() if line.startswith("Created experiment ")]
    return int(line.split()[-1])


def test_lines_that_only_read_start_no_master(folder: Folder, tmp_path: Path) -> None:
    with at_home(tmp_path, {}):
        said = folder.det_afresh("e list", status=1)
        assert said.startswith("no det_jupyter master runs; `det master")
        assert folder.det("master status --json", status=3) == ""
        assert "invalid choice: 'lst'" in folder.det("e lst", status=2)
        assert find_master() is None


def test_an_experiment_is_created_and_followed_to_its_end(folder: Folder) -> None:
    said = folder.det_afresh(
        "e create config.yaml . --follow --config hyperparameters.pause_s=0.01"
    )
    number = number_of(said)
    lines = said.splitlines()
    assert lines[0].startswith("Preparing files to send to master... 3 files, ")
    assert sum("rank=1 | batch " in line for line in lines) == 12
    assert any(" batch 12: validation error " in line for line in lines)
    # Validations are printed by another thread: the last one may come after the end of the logs.
    ended = "Trial log stream ended. To reopen log stream, run: det trial logs"
    after = lines[[line.startswith(ended) for line in lines].index(True) + 1 :]
    assert not any("rank=" in line for line in after)
    assert lines[-1].startswith(f"Experiment {number} “small”: completed; error ")

    rows = json.loads(folder.det("e list --json"))
    assert (rows[0]["ID"], rows[0]["State"]) == (number, "COMPLETED")
    assert folder.det(f"e wait {number}").endswith("completed\n")
    assert len(folder.det(f"e logs {number} --rank 0").splitlines()) == 12
    tables = folder.det(f"e describe {number} --csv --metrics").split("\n\n")
    [header, *workloads] = csv.reader(tables[2].splitlines()[1:])
    assert "Validation Metric: error" in header
    assert [row[header.index("# of Batches")] for row in workloads] == ["4", "8", "12"]
    folder.det(f"e download {number} -o best")
    assert list((folder.path / "best").glob("*/metadata.json"))
    folder.det(f"e download-model-def {number} -o code")
    same = (folder.path / "code" / "model_def.py").read_text()
    assert same == (folder.path / "model_def.py").read_text()
    pipe = f"{' '.join(DET)} e logs {number} | head -1"
    done = subprocess.run(pipe, shell=True, capture_output=True, text=True, check=False)
    assert (len(done.stdout.splitlines()), done.stderr) == (1, "")


def test_an_estimate_measures_batches_and_leaves_nothing(folder: Folder) -> None:
    before = folder.det("e list --json")
    said = folder.det("e create config.yaml . --estimate --config resources.slots_per_trial=1")
    assert "\r" not in said, "progress is no output"
    head = said.index("Memory of a rank, measured with some batches on 1 slot:")
    _, _, names, cells, _, verdict = said[head:].splitlines()
    assert names.split()[1:4] == ["parameters", "gradients", "optimizer"]
    assert cells.split()[:7] == ["first", *["644", "B"] * 3], "161 numbers, and their momentum"
    assert "that the computer has" in verdict
    assert "s a batch, measured now)" in said[:head]
    assert folder.det("e list --json") == before


def test_an_experiment_is_followed_left_and_steered(
    folder: Folder, client: Client, tmp_path: Path
) -> None:
    stdout, stderr = tmp_path / "stdout", tmp_path / "stderr"
    following = folder.start("e create slow.yaml . -f", stdout, stderr)
    wait_until(lambda: "Following first trial" in stdout.read_text(), "it follows")
    number = number_of(stdout.read_text())
    experiment = Experiment(client, number)
    wait_for_steps(experiment, 1)
    following.send_signal(signal.SIGINT)
    assert following.wait() == 130
    said = stderr.read_text().splitlines()[-1]
    assert said.startswith(f"Stopped following. Experiment {number} goes on:")

    folder.det(f"e pause {number}")
    wait_until(lambda: not client.cluster(limit=0).holding, "it has left its slots")
    assert "Paus" in folder.det("e list")  # pausing, then paused
    folder.det(f"e activate {number}")
    wait_for_steps(experiment, experiment.view.trials[0].steps_completed + 1)
    folder.det(f"e set name {number} wide")
    folder.det(f"e label add {number} good")
    assert json.loads(folder.det("e list --label good --json"))[0]["Name"] == "wide"
    offered = subprocess.run(
        [*DET, "completion", "words", "--", "e", "kill", ""], capture_output=True, text=True,
        check=True,
    ).stdout.split()  # fmt: skip
    assert str(number) in offered
    folder.det(f"e kill {number}")
    assert "canceled" in folder.det(f"e wait {number}", status=1)
    folder.det(f"e delete {number} --yes")


def test_tensorboard_runs_in_the_background_until_it_is_killed(
    folder: Folder, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tensorboard")
    *_, row = client.find(ExperimentQuery()).rows
    trial = client.experiment(row.id).trials[0].id
    with monkeypatch.context() as environment:
        environment.setenv("http_proxy", "http://127.0.0.1:9")  # it cannot reach this computer
        number = folder.det_afresh(f"tensorboard start -t {trial} --detach").strip()
    [board] = json.loads(folder.det("tensorboard --json"))
    assert (str(board["ID"]), board["Trials"], board["Experiments"]) == (number, str(trial), None)

    def has_read_it() -> bool:
        with urllib.request.urlopen(f"{board['URL']}data/runs") as answer:
            return f"experiment-{row.id}/trial-{trial}" in json.load(answer)

    wait_until(has_read_it, "TensorBoard has read the trial's files")
    assert board["URL"] in folder.det(f"tensorboard open {number}")
    folder.det(f"tensorboard kill {number}")
    assert folder.det("tensorboard -q") == ""
    assert not os.path.exists(board["Folder"])
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(board["URL"])
    assert f"no TensorBoard {number}; there are: none" in folder.det(
        f"tensorboard kill {number}", status=1
    )
    assert folder.det(f"tensorboard kill -f {number}") == ""


def test_one_batch_is_tried_as_an_experiment(folder: Folder) -> None:
    said = folder.det("e create config.yaml . --test-mode")
    assert said.endswith("Model definition test succeeded! 🎉\n")
    number = number_of(said)
    assert all(row["ID"] != number for row in json.loads(folder.det("e list --json")))


def test_all_that_is_wrong_is_told(folder: Folder) -> None:
    folder.write("wrong.yaml", {"name": "x", "entrypoint": "model_def:Nothing", "searcher": {}})
    problems = folder.det("e create wrong.yaml .", status=1).splitlines()
    assert len(problems) > 1
    assert all(problem.startswith("wrong.yaml: ") for problem in problems)
    problems = folder.det("e create wrong.yaml none --config name", status=1).splitlines()
    for problem in ("--config: got 'name'", "wrong.yaml: ", "context: none: there is no such"):
        assert any(each.startswith(problem) for each in problems)
    config = small_config(entrypoint="model_def:SmallTrial")
    del config["hyperparameters"]["global_batch_size"]
    folder.write("wrong.yaml", config)
    assert folder.det("e create wrong.yaml .", status=1) == (
        "wrong.yaml: line 2: hyperparameters.global_batch_size: missing; "
        "SmallTrial.build_training_data_loader requires it: give the batch size of all slots "
        "together\n"
    )
    assert "No such file" in folder.det("e create none.yaml .", status=1)
    assert "--local needs --test-mode" in folder.det("e create config.yaml --local", status=2)


def test_templates_are_kept_by_files(folder: Folder) -> None:
    folder.write("template.yaml", {"resources": {"slots_per_trial": 1}})
    folder.det("template create one template.yaml")
    assert "already" in folder.det("template create one template.yaml", status=1)
    assert json.loads(folder.det("tpl list --json"))[0]["Name"] == "one"
    said = folder.det("e create config.yaml . --template one --paused --config name=templated")
    config = yaml.safe_load(folder.det(f"e config {number_of(said)}"))
    assert config["name"] == "templated"


def test_a_support_bundle_has_what_a_report_needs_and_no_secrets(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = 'quite "hidden', "a value of two words"
    others = "p@ss/word", "0a1b2c3d4e", "5f6a7b8c9d"
    monkeypatch.setenv("DATABASE_URL", f"redis://ann:{quote(others[0], safe='')}@example.com")
    config = yaml.safe_load((folder.path / "config.yaml").read_text())
    variables = [
        f"{name}={value}" for name, value in zip(("A", "DB_PASSWORD"), secrets, strict=True)
    ]
    data = {
        "args": ["--api-token", others[1]], "credentials": {"inner": [others[2]]},
        "url": f"https://ann:{others[0]}@example.com", others[0]: 1,
    }  # fmt: skip
    folder.write("secret.yaml", config | {"environment": {"environment_variables": variables},
                                          "description": f"uses {secrets[0]} and {others[0]}",
                                          "data": data})  # fmt: skip
    number = number_of(folder.det("e create secret.yaml . --paused"))
    said = folder.det(f"support-bundle {number} -o bundle.tar.gz")
    path = folder.path / "bundle.tar.gz"
    assert str(path.name) in said
    assert path.stat().st_mode & 0o777 == 0o600
    with tarfile.open(path) as tar:
        texts = {
            member.name.partition("/")[2]: file.read().decode()
            for member in tar
            if (file := tar.extractfile(member)) is not None
        }
    info = find_master()
    assert info is not None
    for name, text in texts.items():
        written = (json.dumps(each)[1:-1] for each in secrets)
        assert not [each for each in (*secrets, *written, *others, info.token) if each in text], (
            name
        )
        assert not name.endswith(".json") or json.loads(text) is not None, name
    assert "problems.txt" not in texts, texts["problems.txt"]
    assert {"README.txt", "versions.json", "logs/master.log", "logs/agent.log",
            "master/status.json"} <= texts.keys()  # fmt: skip
    assert "torch" in json.loads(texts["versions.json"])["packages"]
    given = yaml.safe_load(texts[f"experiments/{number}/config.yaml"])
    assert given["environment"]["environment_variables"] == [
        "A=<removed>", "DB_PASSWORD=<removed>",
    ]  # fmt: skip
    assert json.loads(texts[f"experiments/{number}/experiment.json"])["state"] == "PAUSED"


def test_the_master_is_asked_and_stopped(folder: Folder, tmp_path: Path) -> None:
    info = json.loads(folder.det("master info --json"))
    assert "token" not in info
    assert os.path.isdir(info["data_dir"])
    assert folder.det("master logs --tail 1").count("\n") == 1
    assert "The master runs" in folder.det("master status")
    # Its next agent trains nothing, and loads no torch.
    (tmp_path / "torch.py").write_text("raise ImportError('there is none')")
    modules = f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    assert "The master runs" in folder.det_afresh("master restart", PYTHONPATH=modules)
    renewed = json.loads(folder.det("master info --json"))
    assert renewed["pid"] != info["pid"]
    assert f"The master runs: pid {renewed['pid']}, " in folder.det("master start")
    assert "stopped" in folder.det("master stop")
    assert folder.det("slot list", status=1).startswith("no det_jupyter master runs")
    assert "Wrote without.tar.gz" in folder.det("support-bundle 1 -o without.tar.gz")
