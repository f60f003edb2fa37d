"""What the magics do with a line and a cell: submit, show, refuse, or run a verb."""

from __future__ import annotations

from argparse import Namespace
from types import SimpleNamespace
from typing import Any

import pytest
from IPython.core.error import UsageError as LineError

from det_jupyter.client import Experiment
from det_jupyter.contract.messages import TemplateView
from det_jupyter.errors import ConfigError, Conflict, NotFound
from det_jupyter.front.notebook.handles import connection, experiment_handles
from det_jupyter.front.notebook.magics import DetMagics, RefusedExperiment
from det_jupyter.front.notebook.submit import contexts, preview_and_local, submitting
from tests.unit.client.handles.test_experiment import Wired
from tests.unit.front.verbs.finding_samples import rows_found
from tests.unit.view.view_samples import experiment, trial


class Handle:
    """A handle on a submitted experiment."""

    def __init__(self) -> None:
        self.did: list[str] = []

    def show(self) -> None:
        self.did.append("show")

    def wait(self) -> None:
        self.did.append("wait")


class Notebook:
    """A shell with our magics, and what they call."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: dict[str, Any] = {"experiment": "the one before"}
        self.handle = Handle()
        self.called: list[tuple[str, str]] = []
        self.refusal: BaseException | None = None
        shell: Any = SimpleNamespace(user_ns=self.names, execution_count=4)
        self.magics: Any = DetMagics()
        self.magics.shell = shell
        for module, name in (
            (submitting, "submit_cell"), (submitting, "dry_run"),
            (preview_and_local, "run_local"), (preview_and_local, "preview_cell"),
        ):  # fmt: skip
            monkeypatch.setattr(module, name, self._noted(name))

    def _noted(self, name: str) -> Any:
        def call(cell: str, options: Namespace, shell: Any) -> Any:
            assert shell is self.magics.shell
            self.called.append((name, cell))
            if self.refusal is not None:
                raise self.refusal
            return self.handle if name == "submit_cell" else name

        return call

    def submit(self, line: str = "") -> Any:
        return self.magics.det_experiment(line, "a: 1\n")


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Notebook:
    return Notebook(monkeypatch)


@pytest.mark.parametrize(
    ("line", "variable", "is_waited_for"),
    [("", "experiment", False), ("--var nets", "nets", False), ("--wait", "experiment", True)],
)
def test_a_cell_is_submitted_and_its_handle_is_in_a_variable(
    line: str, variable: str, is_waited_for: bool, notebook: Notebook
) -> None:
    returned = notebook.submit(line)
    assert notebook.called == [("submit_cell", "a: 1\n")]
    assert notebook.names[variable] is notebook.handle
    assert returned is (None if is_waited_for else notebook.handle)
    assert notebook.handle.did == (["show", "wait"] if is_waited_for else [])


@pytest.mark.parametrize(
    ("line", "name"),
    [("--local", "run_local"), ("--preview", "preview_cell"), ("--dry-run", "dry_run")],
)
def test_what_submits_nothing_leaves_the_variable_alone(
    line: str, name: str, notebook: Notebook
) -> None:
    assert notebook.submit(line) == name
    assert notebook.called == [(name, "a: 1\n")]
    notebook.refusal = Conflict("no")
    with pytest.raises(Conflict):
        notebook.submit(line)
    with pytest.raises(LineError, match="unrecognized arguments: --odd"):
        notebook.submit(f"{line} --odd")
    assert notebook.names == {"experiment": "the one before"}


@pytest.mark.parametrize("refusal", [Conflict("it is full"), KeyboardInterrupt()])
def test_after_a_refusal_the_variable_says_that_there_is_no_experiment(
    refusal: BaseException, notebook: Notebook
) -> None:
    notebook.refusal = refusal
    with pytest.raises(type(refusal)):
        notebook.submit("--var nets")
    assert notebook.names["experiment"] == "the one before"
    refused = notebook.names["nets"]
    reason = str(refusal) or "KeyboardInterrupt"
    assert repr(refused) == (
        f"No experiment: the cell that was to submit it was refused: {reason}"
    )
    with pytest.raises(NotFound, match=f"there is no experiment, .* refused: {reason}"):
        refused.show()
    assert not hasattr(refused, "_repr_html_"), "front ends look for it"


@pytest.mark.parametrize(
    ("line", "variable", "message"),
    [
        ("--odd", "experiment", "unrecognized arguments: --odd"),
        ("--var nets --odd", "nets", "unrecognized arguments: --odd"),
        ("--var=nets --odd", "nets", "unrecognized arguments: --odd"),
        ("--var class", "class", "--var: got 'class', expected a name"),
        ("--var 1a", "1a", "--var: got '1a', expected a name"),
        ("--slots x", "experiment", "--slots"),
    ],
)
def test_a_line_that_is_wrong_submits_nothing_and_says_so(
    line: str, variable: str, message: str, notebook: Notebook
) -> None:
    with pytest.raises(LineError, match=message):
        notebook.submit(line)
    assert notebook.called == []
    assert isinstance(notebook.names[variable], RefusedExperiment)


def test_help_is_printed_and_submits_nothing(
    notebook: Notebook, capsys: pytest.CaptureFixture[str]
) -> None:
    for returned in (
        notebook.submit("--help"),
        notebook.magics.det_experiment("--help"),
        notebook.magics.det(""),
        notebook.magics.det("slots --help"),
    ):
        assert returned is None
    assert capsys.readouterr().out.count("show this help message") == 5  # line and cell
    assert notebook.called == []
    assert notebook.names == {"experiment": "the one before"}


@pytest.fixture
def wired(monkeypatch: pytest.MonkeyPatch) -> Wired:
    wired = Wired(experiments=rows_found(8, 7), why="")
    wired.answers["8"] = experiment(trial(), id=8)
    monkeypatch.setattr(connection, "client", lambda: wired.client)
    monkeypatch.setattr(
        experiment_handles, "experiment", lambda number: Experiment(wired.client, number)
    )
    return wired


def test_a_line_prints_text_and_returns_handles(
    notebook: Notebook, wired: Wired, capsys: pytest.CaptureFixture[str]
) -> None:
    assert notebook.magics.det_experiment("") is None, "the list, without a verb"
    listed = capsys.readouterr().out
    assert notebook.magics.det("experiment list") is None
    assert capsys.readouterr().out == listed
    assert "8" in listed
    assert notebook.magics.det_experiment("show 8").id == 8
    assert capsys.readouterr().out == ""


def test_what_is_not_there_is_told_with_what_is(
    notebook: Notebook, wired: Wired, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(number: int) -> Any:
        raise NotFound("there is no experiment 9", what="experiment", number=9)

    monkeypatch.setattr(wired.client, "experiment", missing)
    with pytest.raises(NotFound, match=r"there is no experiment 9; .*8"):
        notebook.magics.det_experiment("describe 9")


def test_a_cell_belongs_to_verbs_that_take_text(notebook: Notebook, wired: Wired) -> None:
    wired.answers["digits"] = TemplateView(name="digits", config={}, created_at=1, updated_at=1)
    notebook.magics.det("template set digits", "max_restarts: 3\n")
    assert wired.asked == [("PUT", "templates/digits", {"config": {"max_restarts": 3}})]
    with pytest.raises(LineError, match=r"%det slots: takes no cell; write %det"):
        notebook.magics.det("slots", "a: 1\n")
    with pytest.raises(ConfigError, match="line 2: max_restarts: this is not YAML"):
        notebook.magics.det("template set digits", "max_restarts: [1\n")
    with pytest.raises(LineError, match="invalid choice: 'slot_s'"):
        notebook.magics.det("slot_s")
    with pytest.raises(LineError, match="archive: takes no cell; write %det"):
        notebook.magics.det("experiment archive 3", "a: 1\n")
    with pytest.raises(LineError, match="invalid choice"):
        notebook.magics.det_experiment("slots")
    wired.answers["experiments"] = experiment(trial(), id=9)
    notebook.magics.det_experiment("fork 8", "max_restarts: 3\n")
    assert wired.asked[-1][2]["config"]["max_restarts"] == 3
    assert notebook.called == [], "a cell below `fork` is no experiment of its own"


def test_a_script_is_kept_with_the_cell_that_it_is_from(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(contexts, "SCRIPTS", {})
    notebook.magics.det_script("")
    assert capsys.readouterr().out.startswith("no scripts yet; ")
    notebook.magics.det_script("train.py", "print(1)\n")
    assert capsys.readouterr().out.startswith("train.py: 1 line, ")
    notebook.magics.det_script("")
    assert capsys.readouterr().out.split() == ["train.py", "1", "line", "In", "[4]"]
    with pytest.raises(LineError, match=r"%det_script lists scripts; %%det_script a.py makes one"):
        notebook.magics.det_script(" a.py ")
    with pytest.raises(LineError, match="expected the path of one file"):
        notebook.magics.det_script("/a.py", "")
    assert contexts.SCRIPTS.keys() == {"train.py"}
