"""What the kernel answers when the view asks."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from det_jupyter.client import Client
from det_jupyter.client.answers.answering import answer
from det_jupyter.contract.messages import (
    Activate,
    ChangeResources,
    CheckpointView,
    EffectiveConfig,
    ExperimentView,
    LogLine,
    LogPage,
    LogQuery,
    ModelView,
    Pause,
    Series,
    SeriesPage,
    SeriesQuery,
    TrialView,
)
from det_jupyter.errors import NotFound
from det_jupyter.front.notebook.handles.front_end import STATIC_DIR
from det_jupyter.front.notebook.handles.widget import ANSWERERS, answer_soon
from tests.unit.view.view_samples import experiment, trial

ASKED = {"type": "logs", "request": 4, "trial_id": 3, "rank": 1, "level": "error", "search": "",
         "after": 7, "tail": 1000}  # fmt: skip


class Master:
    """Answers with these lines, or raises."""

    session = SimpleNamespace(info=SimpleNamespace(data_dir="/data"))

    def __init__(self, error: Exception | None = None, lines: Sequence[str] = ("ERROR",)) -> None:
        self.error, self.lines = error, lines
        self.metrics: list[float | None] = [0.5, 0.9, None]
        self.may_pause = threading.Event()
        self.changed: list[str] = []

    def experiment_logs(self, experiment_id: int, query: LogQuery, *, trial_id: int) -> LogPage:
        if self.error is not None:
            raise self.error
        assert (experiment_id, trial_id) == (9, 3)
        assert query == LogQuery(after=7, tail=1000, rank=1, level="error")
        lines = [
            LogLine(id=8 + i, at=1.0, trial_id=3, run=1, rank=1, text=text)
            for i, text in enumerate(self.lines)
        ]
        return LogPage(lines=lines, total=len(lines), last_id=8, is_over=False)

    def effective_config(self, experiment_id: int) -> EffectiveConfig:
        assert experiment_id == 9
        return EffectiveConfig(
            yaml="name: a  # default\n", config={}, origins={}, notices=["mind"]
        )

    def experiment(self, experiment_id: int) -> ExperimentView:
        return experiment(trial(), id=experiment_id)

    def trial(self, trial_id: int) -> TrialView:
        return trial(id=trial_id)

    def change(self, request: ChangeResources | Pause | Activate) -> None:
        if isinstance(request, ChangeResources):
            assert request.priority == 30
        elif isinstance(request, Pause):
            self.may_pause.wait()
        self.changed.append(type(request).__name__)

    def models(self) -> list[ModelView]:
        return []

    def checkpoints(self, experiment_id: int) -> list[CheckpointView]:
        return [
            CheckpointView(
                uuid=f"c{i}", experiment_id=experiment_id, trial_id=3, steps_completed=i,
                path=f"/data/c{i}", size_bytes=7, created_at=1.0, searcher_metric=metric,
            )
            for i, metric in enumerate(self.metrics)
        ]  # fmt: skip

    def as_client(self) -> Client:
        return cast("Client", self)


def test_the_answer_has_the_lines_and_comes_from_another_thread() -> None:
    sent: queue.Queue[dict[str, Any]] = queue.Queue()
    answer_soon(Master().as_client(), 9, ASKED, sent.put)
    said = sent.get()
    assert (said["type"], said["request"], said["error"]) == ("logs", 4, "")
    assert [line["text"] for line in said["lines"]] == ["ERROR"]
    assert (said["total"], said["last_id"], said["is_over"]) == (1, 8, False)


def test_buttons_act_in_the_order_in_which_they_were_pressed() -> None:
    sent: queue.Queue[dict[str, Any]] = queue.Queue()
    master = Master()
    for verb in ("pause", "activate"):
        answer_soon(master.as_client(), 9, {"type": "command", "command": verb}, sent.put)
    answer_soon(master.as_client(), 9, ASKED, sent.put)  # other questions do not wait
    assert sent.get()["type"] == "logs"
    master.may_pause.set()
    assert [sent.get()["error"], sent.get()["error"]] == ["", ""]
    assert master.changed == ["Pause", "Activate"]


def test_of_the_lines_that_fit_only_the_first_come_when_they_are_asked_for() -> None:
    master = Master(lines=["Traceback", "  at", "E"] + ["x" * 999] * 900)
    said = answer(master.as_client(), 9, {**ASKED, "first": 3})
    assert [line["text"] for line in said["lines"]] == ["Traceback", "  at", "E"]


def test_an_answer_is_never_too_large_for_a_message() -> None:
    printed = ["old"] + ["x" * 9000] * 400 + ["new"]
    said = answer(Master(lines=printed).as_client(), 9, ASKED)
    assert len(json.dumps(said)) < 400_000
    assert said["total"] == 402
    assert said["lines"][-1]["text"] == "new"
    assert said["lines"][-2]["text"] == "x" * 1000 + "…"
    assert 290 < len(said["lines"]) <= 300


@pytest.mark.parametrize(
    ("error", "asked", "said"),
    [
        (NotFound("there is no trial 3"), ASKED, "there is no trial 3"),
        (OSError("broken"), ASKED, "OSError: broken"),
        (None, {**ASKED, "level": "loud"}, "level: got 'loud', expected one of debug, info"),
    ],
)
def test_an_error_is_said_in_the_panel(
    error: Exception | None, asked: dict[str, Any], said: str
) -> None:
    answered = answer(Master(error).as_client(), 9, asked)
    assert answered["request"] == 4
    assert answered["error"].startswith(said)


@pytest.mark.parametrize("kind", ["tabs", "__class__", None, 3, ["logs"]])
def test_an_unknown_question_is_said_to_be_one(kind: object) -> None:
    assert "there is no question" in answer(Master().as_client(), 9, {"type": kind})["error"]


def test_the_configuration_comes_with_the_origins_of_its_values() -> None:
    said = answer(Master().as_client(), 9, {"type": "config", "request": "r"})
    assert said == {
        "type": "config", "request": "r", "error": "", "template": None,
        "yaml": "name: a  # default\n", "notices": ["mind"],
    }  # fmt: skip


def test_checkpoints_come_newest_first_with_the_best_one_named() -> None:
    said = answer(Master().as_client(), 9, {"type": "checkpoints", "request": "r"})
    assert [one["uuid"] for one in said["checkpoints"]] == ["c2", "c1", "c0"]
    assert (said["total"], said["best"]) == (3, "c1")


def test_of_very_many_checkpoints_the_newest_come() -> None:
    master = Master()
    master.metrics = [None] * 700
    said = answer(master.as_client(), 9, {"type": "checkpoints"})
    assert (len(said["checkpoints"]), said["total"], said["best"]) == (500, 700, "")
    assert [said["checkpoints"][i]["uuid"] for i in (0, -1)] == ["c699", "c200"]
    assert len(json.dumps(said)) < 400_000


class Measured:
    """Has a point for each column of each of some series; notes what it is asked."""

    def __init__(self, num_series: int) -> None:
        self.num_series = num_series
        self.asked: list[tuple[int | str, SeriesQuery]] = []

    def series(self, of: int | str, query: SeriesQuery) -> SeriesPage:
        self.asked.append((of, query))
        points = [float(i) for i in range(query.columns)]
        return SeriesPage(
            series=[
                Series(
                    source="batches", name=f"m{i}", title="", x=points, low=points, mid=points,
                    high=points,
                )
                for i in range(self.num_series)
            ],
            began_at=1.0,
        )  # fmt: skip

    agent_series = series


def asked_series(master: Measured, **question: Any) -> dict[str, Any]:
    query = {"of": "metrics", "axis": "time", "names": None, "since": None, "columns": 600}
    said = {"type": "series", "request": 4, "query": query, **question}
    return answer(cast("Client", master), 9, said)


def test_series_of_a_trial_of_several_or_of_an_agent_are_answered() -> None:
    master = Measured(2)
    assert len(asked_series(master, trial_id=3)["page"]["series"][1]["x"]) == 600
    assert asked_series(master, trial_ids=[3, 4])["pages"].keys() == {"3", "4"}
    assert asked_series(master, agent_id="here")["error"] == ""
    assert [of for of, _ in master.asked] == [3, 3, 4, "here"]
    assert "columns" in asked_series(master, query={"of": "metrics", "columns": 0})["error"]
    assert "trial_id" in asked_series(master, trial_id="x")["error"]


def test_pages_of_series_fit_a_message() -> None:
    master = Measured(26)
    assert len(json.dumps(asked_series(master, trial_id=3))) < 1_000_000
    asked_series(master, agent_id="here")
    asked_series(master, trial_ids=[3, 4])
    assert [query.max_points for _, query in master.asked] == [16_000, 16_000, 8_000, 8_000]


@pytest.mark.skipif(not (STATIC_DIR / "tabs.js").is_file(), reason="the front end is not built")
def test_the_code_of_the_tabs_is_an_answer_that_fits_a_message() -> None:
    said = answer(Master().as_client(), 9, {"type": "tabs", "request": "r"}, ANSWERERS)
    assert said["text"].startswith("export default")
    assert len(json.dumps(said)) < 400_000


def test_a_change_of_the_priority_alone_is_said() -> None:
    asked = {"type": "change", "request": 5, "trial_id": 1, "changes": {"priority": 30}}
    told = answer(cast("Client", Master()), 9, asked)
    assert told["error"] == ""
    assert told["text"] == "priority 30"
