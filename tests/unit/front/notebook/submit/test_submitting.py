"""What a notebook submits: checks, notices, and the one request; a dry run sends nothing."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from det_jupyter.contract.messages import TemplateView
from det_jupyter.errors import CaptureError, ConfigError, MasterUnreachable
from det_jupyter.front.notebook.complete.magic_parsers import cell_parser
from det_jupyter.front.notebook.handles import connection, experiment_handles
from det_jupyter.front.notebook.submit import submitting
from det_jupyter.front.notebook.submit.caller import Caller, notebook_path, present_folder
from det_jupyter.front.notebook.submit.from_python import submit
from det_jupyter.front.notebook.submit.submitting import dry_run, submit_cell
from det_jupyter.front.verbs.grammar import parse
from tests.problems import said
from tests.unit.client.handles.test_experiment import Wired
from tests.unit.front.notebook.submit.test_checks import Net as Trial
from tests.unit.front.verbs.cluster_samples import agent, cluster, pool, slot
from tests.unit.view.view_samples import experiment, trial

CELL = """name: digits
entrypoint: model:Digits
searcher: {name: single, metric: error, max_length: {batches: 10}}
"""
SHELL: Any = SimpleNamespace(user_ns={"seen": 1})


@pytest.fixture
def wired(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Wired:
    work = tmp_path / "work"
    work.mkdir()
    (work / "model.py").write_text("class Digits: ...\n")
    monkeypatch.chdir(work)
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    wired = Wired(
        experiments=experiment(trial(), id=12),
        possible={"problem": None},
        base=TemplateView(name="base", config={"max_restarts": 9}, created_at=0.0, updated_at=0.0),
        room={},
        cluster=cluster(pool(agent(slot(0)))),
    )
    info = wired.client.session.info.model_copy(update={"data_dir": str(tmp_path / "data")})
    wired.client.session.info = info
    monkeypatch.setattr(connection, "client", lambda: wired.client)
    monkeypatch.setattr(experiment_handles, "experiment_of", lambda view: f"handle {view.id}")
    return wired


def options(words: str = "") -> Any:
    return parse(cell_parser(), words)


def requests(wired: Wired) -> list[dict[str, Any]]:
    return [
        body for method, path, body in wired.asked if (method, path) == ("POST", "experiments")
    ]


def test_a_cell_is_one_request(
    wired: Wired, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cast(Any, submit_cell(CELL, options("--template base"), SHELL)) == "handle 12"
    [request] = requests(wired)
    assert request["config"]["name"] == "digits"
    assert (request["template"], request["queue_anyway"]) == ("base", False)
    assert (request["python"], request["cwd"]) == (sys.executable, str(tmp_path / "work"))
    assert request["capsule"]["entrypoint"] == "model:Digits"
    assert request["notebook"] is None
    assert (
        f"Note: ranks work in {tmp_path}/work itself, and read its files when they start; "
        "--context . has them work in a copy\n" in capsys.readouterr().out
    )


def test_a_context_is_sent_and_the_folder_is_not_read_later(
    wired: Wired, capsys: pytest.CaptureFixture[str]
) -> None:
    submit_cell(CELL, options("--context . --queue-anyway"), SHELL)
    [request] = requests(wired)
    assert request["queue_anyway"] is True
    assert request["capsule"]["context"]["num_files"] == 1
    assert "itself" not in capsys.readouterr().out


def test_all_problems_of_a_cell_come_with_their_lines(wired: Wired) -> None:
    wired.answers["possible"] = {"problem": {"path": "resources.slots_per_trial", "text": "no"}}
    cell = CELL.replace("Digits", "Digts") + "max_restart: 1\nresources: {slots_per_trial: 3}\n"
    with pytest.raises(ConfigError) as caught:
        submit_cell(cell, options(), SHELL)
    found = said(caught.value.problems)
    assert [each.partition(":")[0] for each in found] == ["line 3", "line 5", "line 6"]
    assert "did you mean Digits?" in found[0]
    assert requests(wired) == []


def test_a_refusal_of_the_master_has_lines_too(
    wired: Wired, monkeypatch: pytest.MonkeyPatch
) -> None:
    from det_jupyter.errors import Problem

    def refuse(request: Any) -> Any:
        raise ConfigError([Problem("searcher.metric", "is no metric")])

    monkeypatch.setattr(wired.client, "create", refuse)
    with pytest.raises(ConfigError) as caught:
        submit_cell(CELL, options(), SHELL)
    assert said(caught.value.problems) == ["line 4: searcher.metric: is no metric"]


@pytest.mark.parametrize(
    ("slots", "problem", "words"),
    [
        (1, None, "to run on 1 slot."),
        (4, None, "to run on 4 slots."),
        (0, None, "to run without slots."),
        (4, {"path": "a", "text": "too many"}, "to queue, though it cannot run now: a: too many."),
    ],
)
def test_a_dry_run_says_what_would_be_sent_and_sends_nothing(
    slots: int,
    problem: Any,
    words: str,
    wired: Wired,
    capsys: pytest.CaptureFixture[str],
) -> None:
    wired.answers["possible"] = {"problem": problem}
    dry_run(
        f"{CELL}resources: {{slots_per_trial: {slots}}}\n",
        options("--context . --queue-anyway"),
        SHELL,
    )
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"“digits” is ready {words}"
    assert lines[1] == "It takes with it:"
    assert any("model.py" in line for line in lines[2:])
    assert requests(wired) == []


def test_a_dry_run_of_what_takes_nothing_lists_nothing(
    wired: Wired, capsys: pytest.CaptureFixture[str]
) -> None:
    dry_run(CELL, options(), SHELL)
    assert "It takes with it" not in capsys.readouterr().out


class Net:
    """A captured trial would be one of PyTorchTrial."""


def test_an_object_is_told_as_what_it_is(wired: Wired) -> None:
    with pytest.raises(ConfigError) as caught:
        submit(Net, {"searcher": {"name": "single", "metric": "e", "max_length": {"batches": 1}}})
    assert any("entrypoint" in each and "Net" in each for each in said(caught.value.problems))
    assert requests(wired) == []


def test_a_call_from_a_script_prints_what_the_capsule_says(
    wired: Wired, capsys: pytest.CaptureFixture[str]
) -> None:
    config = {"searcher": {"name": "single", "metric": "e", "max_length": {"batches": 1}}}
    submit("model:Digits", config, context=".")
    [request] = requests(wired)
    printed = capsys.readouterr().out
    assert all(f"Note: {each}\n" in printed for each in request["capsule"]["notices"])
    assert request["capsule"]["notices"]


@pytest.mark.parametrize(
    ("session", "own", "path"),
    [("a/b.ipynb", {}, "a/b.ipynb"), (None, {"__vsc_ipynb_file__": "/v.ipynb"}, "/v.ipynb"),
     (None, {}, None)],
)  # fmt: skip
def test_the_notebook_is_named_by_its_front_end(
    session: str | None, own: dict[str, Any], path: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    if session is not None:
        monkeypatch.setenv("JPY_SESSION_NAME", session)
    assert notebook_path(Caller(namespace=own, shell=SHELL)) == path
    assert notebook_path(Caller(namespace={})) is None
    assert notebook_path(Caller(namespace={"__file__": "/none.py"})) is None


def test_a_folder_that_is_gone_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    assert present_folder() == gone
    gone.rmdir()
    with pytest.raises(CaptureError, match="not there any more"):
        present_folder()
    strange = os.fsencode(tmp_path) + b"/\xff"
    os.mkdir(strange)
    monkeypatch.chdir(os.fsdecode(strange))
    with pytest.raises(CaptureError, match=r"is not UTF-8: b'.*\\xff'"):
        present_folder()


def test_the_master_may_have_a_folder_for_storages_that_cannot_be_used(
    wired: Wired, capsys: pytest.CaptureFixture[str]
) -> None:
    info = wired.client.session.info.model_copy(update={"checkpoint_storage": "/saved"})
    wired.client.session.info = info
    hdfs = "checkpoint_storage: {type: hdfs, hdfs_path: /x}\n"
    submit_cell(f"{CELL}{hdfs}", options("--template base"), SHELL)
    [request] = requests(wired)
    assert request["config"]["checkpoint_storage"]["container_path"] == "/saved"
    assert "hdfs has no backend here; checkpoints go to /saved" in capsys.readouterr().out


@pytest.fixture
def shell() -> Any:
    """A notebook with functions: one that trains by itself, and one that calls a trainer."""
    names: dict[str, Any] = {"__name__": "__main__", "seen": b"0" * 5000}
    source = "def fit(core_context):\n    breakpoint()\n    return seen\n"
    exec(compile(source, "<ipython-input-2-0>", "exec"), names)
    return SimpleNamespace(user_ns=names, user_ns_hidden={}, history_manager=None)


CAPTURED = CELL.replace("model:Digits", "fit")


def test_a_function_of_the_notebook_is_sent_with_what_it_uses(
    wired: Wired, shell: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(submitting, "find_plain", lambda name, names: "transformers.Trainer")
    submit_cell(CAPTURED, options("--context ."), shell)
    capsule = requests(wired)[0]["capsule"]
    assert capsule["entrypoint"] == "fit"
    assert [each["name"] for each in capsule["captured"]] == ["seen", "fit"]
    assert capsule["plain_trainer"] == "transformers.Trainer"
    assert capsule["context"]["num_files"] == 1
    assert any("breakpoint() needs a terminal" in each for each in capsule["notices"])
    assert any(each.startswith("context: ") or "file" in each for each in capsule["notices"])
    capsys.readouterr()
    dry_run(CAPTURED, options("--context ."), shell)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "It takes with it:"
    assert lines[2].split() == ["seen", "bytes", lines[2].split()[2], "bytes"]
    assert lines[3].split()[:2] == ["fit", "function"]
    assert any("`fit` calls transformers.Trainer without DetCallback" in each for each in lines)
    assert len(requests(wired)) == 1


def test_options_of_the_line_are_laid_over_the_configuration(wired: Wired) -> None:
    submit_cell(CELL, options("--name nets --slots 0 --checkpoint-storage ck"), SHELL)
    config = requests(wired)[0]["config"]
    assert (config["name"], config["resources"]) == ("nets", {"slots_per_trial": 0})
    assert config["checkpoint_storage"]["container_path"] == str(Path.cwd() / "ck")
    submit_cell(f"{CELL}resources: {{priority: 3}}\n", options("--slots 2"), SHELL)
    assert requests(wired)[1]["config"]["resources"] == {"priority": 3, "slots_per_trial": 2}
    with pytest.raises(ConfigError, match="resources: got 3"):
        submit_cell(f"{CELL}resources: 3\n", options("--slots 2"), SHELL)


def test_a_captured_function_is_checked_with_its_configuration(wired: Wired, shell: Any) -> None:
    wired.answers["possible"] = {"problem": {"path": "resources.slots_per_trial", "text": "no"}}
    shell.user_ns["needy"] = eval("lambda model: 1", shell.user_ns)
    with pytest.raises(ConfigError) as caught:
        submit_cell(CAPTURED.replace("fit", "needy"), options("--context none"), shell)
    found = "\n".join(said(caught.value.problems))
    for part in ("none", "needy requires model", "resources.slots_per_trial: no"):
        assert part in found
    assert requests(wired) == []


def test_of_a_master_that_does_not_run_the_other_problems_are_told(
    wired: Wired, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable() -> Any:
        raise MasterUnreachable("no master")

    monkeypatch.setattr(connection, "client", unreachable)
    with pytest.raises(ConfigError, match="did you mean Digits"):
        submit_cell(CELL.replace("Digits", "Digts"), options(), SHELL)


class Lacking(Trial):
    """Has a constructor that ranks cannot call."""

    def __init__(self, context: Any, more: int) -> None: ...


@pytest.mark.parametrize(
    ("kind", "paths"),
    [
        (Trial, ["searcher.metric", "hyperparameters.global_batch_size"]),
        (Lacking, ["entrypoint", "hyperparameters.global_batch_size"]),
    ],
)
def test_a_class_is_checked_with_its_configuration(
    kind: type, paths: list[str], wired: Wired
) -> None:
    shell: Any = SimpleNamespace(user_ns={"__name__": __name__, "Net": kind})
    with pytest.raises(ConfigError) as caught:
        submit_cell(CELL.replace("model:Digits", "Net"), options(), shell)
    assert [each.path for each in caught.value.problems] == paths
