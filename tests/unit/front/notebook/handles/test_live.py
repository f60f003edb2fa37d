"""A live view follows its experiment's document: pictures, its widget, and what is printed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from det_jupyter.contract.documents.patches import plain
from det_jupyter.contract.messages import ExperimentView, ImportanceView, State
from det_jupyter.errors import MasterUnreachable, NotFound
from det_jupyter.front.notebook.handles import front_end, live
from det_jupyter.front.notebook.handles.front_end import FrontEnd
from det_jupyter.front.notebook.handles.live import LiveView
from tests.unit.client.documents_fake import FakeDocument, FakeDocuments, state_of
from tests.unit.view.view_cluster_samples import reason, waiting_trial
from tests.unit.view.view_samples import curve, experiment, search_experiment, trial
from tests.waiting import wait_until

VIEW = "application/vnd.jupyter.widget-view+json"
SENTENCE = "needs 4 slots; 2 of 8 are free; experiment 3 “resnet” holds 4; starts when it ends"
SEARCH = search_experiment(4, 4, is_over=True)[0]
IMPORTANCE = ImportanceView(metric="accuracy", shares={"lr": 1.0}, num_trials=4, num_ended=4)
RUNNING = experiment(trial())


def over(state: State = State.COMPLETED, **changes: Any) -> ExperimentView:
    ended = trial(state=state, allocation=None)
    return experiment(ended, state=state, ended_at=2e9, **changes)


def version(view: ExperimentView, *curves: Any, **more: Any) -> Any:
    return plain(state_of(view, *curves, **more))


class Master(FakeDocuments):
    """Also takes changes."""

    def __init__(self, *versions: Any) -> None:
        super().__init__(experiment=versions)
        self.changes: list[Any] = []
        self.problem = ""

    @property
    def followed(self) -> FakeDocument:
        """The document that was asked for last."""
        return self.documents[-1]

    def change(self, request: Any) -> None:
        self.changes.append(request)

    def reader_problem(self) -> str:
        return self.problem

    def experiment(self, number: int) -> ExperimentView:
        if number != 7:
            raise NotFound(f"there is no experiment {number}")
        return RUNNING


class Output:
    """An output that a view has displayed, and its updates."""

    def __init__(self, forms: dict[str, Any]) -> None:
        self.forms = [forms]

    @property
    def pictures(self) -> list[str]:
        return [forms["text/html"] for forms in self.forms]

    @property
    def last(self) -> str:
        return str(self.forms[-1]["text/html"])

    def update(self, forms: dict[str, Any], *, raw: bool, metadata: Any = None) -> None:
        self.forms.append(forms)


class Page:
    """What views display, and the master that has their documents.

    Attributes:
        outputs: What was displayed.
        sleeps: The pauses of views.
        work_s: The CPU time that each version costs.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self.outputs: list[Output] = []
        self.sleeps: list[float] = []
        self.work_s = self._worked_s = 0.0
        self.clock: Callable[[], float] = time.monotonic
        self.master = Master()

    def view(self, where: FrontEnd, *versions: Any) -> LiveView:
        for module in (live, front_end):
            self._monkeypatch.setattr(module, "front_end", lambda: where)
        self.master = Master(*versions)
        return LiveView(self.master.client, 7)

    def display(self, forms: dict[str, Any], metadata: Any = None) -> Output:
        self.outputs.append(Output(forms))
        return self.outputs[-1]

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        time.sleep(0.001)

    def thread_time(self) -> float:
        self._worked_s += self.work_s
        return self._worked_s


def end_of_thread() -> None:
    for thread in threading.enumerate():
        if thread.name == "det-view-7":
            thread.join()


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Iterator[Page]:
    found = Page(monkeypatch)
    clocks = SimpleNamespace(
        monotonic=lambda: found.clock(), thread_time=found.thread_time, sleep=found.sleep
    )
    monkeypatch.setattr(live, "time", clocks)
    monkeypatch.setattr(live, "display_forms", found.display)
    yield found
    for document in found.master.documents:
        document.close()
    for view in live._views.values():
        view._awake.set()
    end_of_thread()
    live._views.clear()


@pytest.fixture
def _built(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("widget.js", "widget.css"):
        (tmp_path / name).touch()
    monkeypatch.setattr(front_end, "STATIC_DIR", tmp_path)


def widget_of(view: LiveView) -> Any:
    return cast("Any", view._widget)


def say(view: LiveView, kind: str, page: str = "a") -> None:
    widget_of(view)._handle_custom_msg({"type": kind, "page": page}, [])


def names(pictures: Sequence[str], *among: str) -> list[str]:
    return [next(name for name in among if f">{name}<" in each) for each in pictures]


def test_an_experiment_that_has_ended_is_shown_with_its_curves(page: Page) -> None:
    page.view("static", version(over(), curve("validation", "error", [0.5, 0.4]))).show()
    [output] = page.outputs
    [picture] = output.pictures
    assert "Completed" in picture
    assert "error" in picture
    end_of_thread()
    assert len(output.forms) == 1


def test_one_that_trains_is_shown_until_its_end(page: Page) -> None:
    page.view("static", version(RUNNING)).show()
    assert "Running" in page.outputs[0].last
    page.master.followed.add(version(over()))
    live.await_last_picture(7)
    assert "Completed" in page.outputs[0].last
    end_of_thread()


def test_all_outputs_follow_with_one_thread(page: Page) -> None:
    view = page.view("static", version(RUNNING))
    view.show()
    view.show()
    assert [each.name for each in threading.enumerate()].count("det-view-7") == 1
    assert len(page.master.documents) == 1
    page.master.followed.add(version(over()))
    live.await_last_picture(7)
    assert all("Completed" in output.last for output in page.outputs)


def test_a_view_that_has_ended_is_fetched_again_when_it_is_displayed(page: Page) -> None:
    view = page.view("static", version(over(name="before")))
    view.show()
    end_of_thread()
    page.master.versions = {"experiment": [version(over(name="renamed"))]}
    view.show()
    assert names([page.outputs[0].last, page.outputs[1].last], "before", "renamed") == [
        "before", "renamed",
    ]  # fmt: skip


def test_picture_is_made_anew_when_the_state_changes_and_once_a_minute(page: Page) -> None:
    queued = experiment(waiting_trial(), name="queued")

    def running(name: str, now: float, *curves: Any) -> Any:
        return version(experiment(trial(), name=name), *curves, now=now)

    view = page.view("static", version(queued, now=1000.0))
    page.clock = lambda: (page.master.followed.latest or {"as_of": 0.0})["as_of"]
    view.show()
    loss = curve("training", "loss", [1.0, 0.5])
    page.master.followed.add(
        version(experiment(waiting_trial(), name="same"), now=1001.0),
        running("starts", 1002.0),
        running("draws", 1003.0, loss),
        running("young", 1062.0, loss),
        running("old", 1064.0, loss),
    )
    [output] = page.outputs
    wait_until(lambda: len(output.forms) == 4, "pictures are kept")
    among = ("queued", "same", "starts", "draws", "young", "old")
    assert names(output.pictures, *among) == ["queued", "starts", "draws", "old"]


@pytest.mark.parametrize("where", ["outputs", "terminal"])
def test_picture_waits_for_the_end_where_it_would_be_in_the_way(
    where: FrontEnd, page: Page
) -> None:
    page.view(where, version(experiment(waiting_trial()))).show()
    page.master.followed.add(version(RUNNING), version(over()))
    live.await_last_picture(7)
    _, picture = page.outputs[0].pictures
    assert "Completed" in picture


@pytest.mark.parametrize(("where", "updates"), [("static", 2), ("terminal", 1)])
def test_the_picture_of_the_end_does_not_wait_for_the_importance(
    where: FrontEnd, updates: int, page: Page
) -> None:
    page.view(where, version(search_experiment(4, 2)[0])).show()
    page.master.followed.add(version(SEARCH))
    live.await_last_picture(7)
    [output] = page.outputs
    assert "Completed" in output.last
    page.master.followed.add(version(SEARCH, importance=IMPORTANCE))
    end_of_thread()
    assert len(output.forms) == 1 + updates
    assert ("Importance" in output.last) is (updates == 2)


def test_the_last_picture_has_the_importance_of_all_trials(page: Page) -> None:
    early = IMPORTANCE.model_copy(update={"num_ended": 3, "shares": {"of_three": 1.0}})
    page.view("static", version(search_experiment(4, 2)[0], importance=early)).show()
    page.master.followed.add(version(SEARCH, importance=early), None)
    live.await_last_picture(7)
    [output] = page.outputs
    assert "of_three" in output.last
    page.master.followed.add(version(SEARCH, importance=IMPORTANCE))
    end_of_thread()
    assert "of_three" not in output.last


def test_importance_that_does_not_come_is_not_awaited_for_ever(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "_COMPLETE_S", 0.01)
    page.view("static", version(SEARCH)).show()
    end_of_thread()


def test_terminal_prints_each_reason_once(page: Page, capsys: pytest.CaptureFixture[str]) -> None:
    def waits(sentence: str) -> Any:
        return version(experiment(waiting_trial()), reasons={1: reason(1, sentence=sentence)})

    page.view("terminal", version(experiment(waiting_trial()))).show()
    page.master.followed.add(waits(SENTENCE), waits(f"{SENTENCE}, about 14:20"), version(over()))
    live.await_last_picture(7)
    assert capsys.readouterr().out == f"experiment 7 “digits”: trial 1 waits: {SENTENCE}\n"


@pytest.mark.parametrize("is_late", [False, True])
def test_terminal_does_not_print_again_what_was_displayed(
    is_late: bool, page: Page, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = version(experiment(waiting_trial()), reasons={1: reason(1)})
    monkeypatch.setattr(live, "_FIRST_S", 0.01 if is_late else 60)
    page.view("terminal", *[None] * 100 * is_late, first).show()
    page.master.followed.add(version(over()))
    live.await_last_picture(7)
    assert reason(1).sentence in page.outputs[0].forms[is_late]["text/plain"]
    assert capsys.readouterr().out == ""


@pytest.mark.usefixtures("_built")
@pytest.mark.parametrize("where", ["places", "outputs", "static", "terminal"])
def test_a_display_waits_no_longer_than_seconds_for_the_reader(
    where: FrontEnd, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "_FIRST_S", 0.01)
    page.view(where).show()
    [output] = page.outputs
    assert output.forms == [
        {"text/plain": "Experiment 7: its view comes as soon as the master's reader answers"}
    ]
    page.master.followed.add(version(RUNNING))
    wait_until(lambda: len(output.forms) == 2, "the output is updated")
    assert "Running" in output.last
    assert (VIEW in output.forms[1]) is (where == "outputs")


def test_a_display_says_why_no_reader_lasts(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "_FIRST_S", 0.01)
    view = page.view("static")
    page.master.problem = "the reader has ended; see reader.log"
    view.show()
    [output] = page.outputs
    assert output.forms[0]["text/plain"].endswith("(the reader has ended; see reader.log)")


def test_without_a_master_a_display_says_how_to_start_one(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "_FIRST_S", 0.01)
    view = page.view("static")
    error = MasterUnreachable("no det_jupyter master runs; `x` starts one")
    monkeypatch.setattr(page.master, "experiment", Mock(side_effect=error))
    with pytest.raises(MasterUnreachable, match="`x` starts one"):
        view.show()
    assert page.outputs == []


def test_what_cannot_be_shown_is_an_error_also_later(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = NotFound("there is no experiment 7")
    view = page.view("static", gone)
    for _ in range(2):
        with pytest.raises(NotFound, match="there is no experiment 7"):
            view.show()
    assert page.outputs == []
    monkeypatch.setattr(live, "_FIRST_S", 0.01)
    page.view("static").show()
    page.master.followed.add(gone)
    [output] = page.outputs
    wait_until(lambda: len(output.forms) == 2, "the output is updated")
    assert output.forms[1] == {"text/plain": "there is no experiment 7"}


def test_of_an_experiment_that_was_deleted_the_last_state_stays(page: Page) -> None:
    view = page.view("static", version(RUNNING))
    view.show()
    page.master.followed.add(NotFound("experiment 7 was deleted"))
    end_of_thread()
    [output] = page.outputs
    assert len(output.forms) == 1
    live.await_last_picture(7)  # returns at once: there will be none


@pytest.mark.parametrize(("work_s", "pause_s"), [(0.001, 0.25), (0.5, 5.0)])
def test_versions_are_asked_for_four_times_a_second_and_take_a_tenth_of_the_time(
    work_s: float, pause_s: float, page: Page
) -> None:
    page.work_s = work_s
    page.view("static", *[version(RUNNING)] * 3).show()
    wait_until(lambda: len(page.sleeps) >= 3, "it pauses")
    assert page.sleeps[:3] == pytest.approx([pause_s] * 3)


@pytest.mark.usefixtures("_built")
@pytest.mark.parametrize("wakes", ["page", "display", "wait"])
def test_versions_are_rare_while_no_page_displays_them(
    wakes: str, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "_REST_S", 3600)
    view = page.view("places", version(RUNNING))
    view.show()
    say(view, "rest")
    page.master.followed.add(version(RUNNING), version(RUNNING), version(over()))
    page.master.versions = {"experiment": [version(over())]}  # for a display after the end

    def has_last() -> bool:
        if wakes == "display":
            view.show()
        return bool(widget_of(view).state["status"] == "completed")

    time.sleep(0.05)
    assert page.master.followed.latest["status"] == "running", "the thread rests"
    if wakes == "wait":
        live.await_last_picture(7)
    elif wakes == "page":
        say(view, "wake")
    wait_until(has_last, "the last version is taken")


@pytest.mark.usefixtures("_built")
@pytest.mark.parametrize("has_ended", [False, True])
def test_the_chosen_trial_is_shown_also_after_the_end(has_ended: bool, page: Page) -> None:
    whole = SEARCH if has_ended else search_experiment(4, 2)[0]
    view = page.view("places", version(whole, importance=IMPORTANCE))
    view.show()
    if has_ended:
        end_of_thread()
    other = whole.trials[-1].id
    chosen = version(whole, importance=IMPORTANCE, chosen_id=other)
    page.master.versions = {"experiment": [chosen]}  # for a document that is asked for anew
    widget_of(view).set_state({"chosen": other})
    assert len(page.master.documents) == 1 + has_ended
    assert page.master.followed.args[-1] == {"experiment_id": 7, "chosen": other}
    if not has_ended:
        page.master.followed.add(chosen)
    wait_until(lambda: widget_of(view).state["search"]["chosen"], "it is shown")
    assert widget_of(view).state["search"]["chosen"]["trial"]["id"] == other
    assert len(page.outputs[0].forms) == 1, "the picture is of no chosen trial"
    if has_ended:
        end_of_thread()


@pytest.mark.usefixtures("_built")
def test_a_choice_at_the_end_is_shown(page: Page) -> None:
    whole, other = search_experiment(4, 2)[0], SEARCH.trials[-1].id
    view = page.view("places", version(whole))
    view.show()
    widget_of(view).set_state({"chosen": other})
    page.master.followed.add(
        version(SEARCH, importance=IMPORTANCE),  # was on its way
        *[None] * 10,
        version(SEARCH, importance=IMPORTANCE, chosen_id=other),
    )
    end_of_thread()
    assert widget_of(view).state["search"]["chosen"]["trial"]["id"] == other


@pytest.mark.usefixtures("_built")
@pytest.mark.parametrize("where", ["places", "outputs", "static", "terminal"])
def test_a_view_is_a_widget_where_one_can_be_drawn(
    where: FrontEnd, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    displayed: list[Any] = []

    def display(*given: Any) -> Output:
        displayed.append(given)
        return Output(given[0])

    view = page.view(where, version(over()))
    monkeypatch.setattr(live, "display_forms", display)
    view.show()
    view.show()
    [(forms, metadata), _] = displayed
    assert (VIEW in forms) is (where == "outputs")
    assert bool(metadata) is (where == "outputs") or metadata == {}
    widget = widget_of(view)
    assert (widget is not None) is (where in ("places", "outputs"))
    if widget is not None:
        assert widget.state["status"] == "completed"
        assert "Completed" in widget.kept["text/html"], "what a page is saved with"
        view.show()
        assert view._widget is widget


@pytest.mark.usefixtures("_built")
def test_a_view_of_an_earlier_kernel_becomes_live_if_it_is_of_this_experiment(page: Page) -> None:
    view = page.view("places", version(RUNNING))
    view.enliven("7@1.0")
    assert page.master.documents == []
    view.enliven(f"7@{RUNNING.created_at}")
    wait_until(lambda: view._widget is not None, "it is drawn")
    assert widget_of(view).key == f"7@{RUNNING.created_at}"
    assert page.outputs == [], "the page has the place for it"
