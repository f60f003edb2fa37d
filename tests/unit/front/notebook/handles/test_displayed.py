"""How handles are displayed where widgets are: live, compared, and after a kernel's restart."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from det_jupyter.client import Client, Comparison
from det_jupyter.client.handles.compare import fetch_experiments
from det_jupyter.connection import Session
from det_jupyter.contract.messages import PROTOCOL, MasterInfo
from det_jupyter.errors import NotFound
from det_jupyter.front.notebook.handles import connection, experiment_handles, front_end
from det_jupyter.front.notebook.handles.experiment_handles import (
    NotebookComparison,
    compare,
    enliven_page,
    live_view,
)
from tests.unit.client.handles.test_compare import Master as Compared
from tests.unit.client.handles.test_compare import ended
from tests.unit.front.notebook.handles.test_live import over

VIEW = "application/vnd.jupyter.widget-view+json"


@pytest.fixture(autouse=True)
def _built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("widget.js", "widget.css", "tabs.js"):
        (tmp_path / name).write_text(f"// {name}")
    monkeypatch.setattr(front_end, "STATIC_DIR", tmp_path)
    caches = (live_view, enliven_page, connection.client)
    for cached in caches:
        cached.cache_clear()
    yield
    for cached in caches:
        cached.cache_clear()


@pytest.mark.parametrize(
    ("shell", "session", "colab", "expected"),
    [
        (None, "a.ipynb", False, "terminal"),
        (SimpleNamespace(kernel=None), "a.ipynb", True, "terminal"),
        (SimpleNamespace(kernel=1), "a.ipynb", False, "places"),
        (SimpleNamespace(kernel=1, user_ns={}), "a.ipynb", False, "places"),
        (SimpleNamespace(kernel=1, user_ns={"__vsc_ipynb_file__": "a"}), "a", False, "outputs"),
        (SimpleNamespace(kernel=1, user_ns={}), "", True, "outputs"),
        (SimpleNamespace(kernel=1, user_ns={}), "", False, "static"),
    ],
)
def test_a_front_end_is_known_by_what_it_sets(
    shell: Any, session: str, colab: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front_end, "get_ipython", lambda: shell)
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    if session:
        monkeypatch.setenv("JPY_SESSION_NAME", session)
    if colab:
        monkeypatch.setitem(sys.modules, "google.colab", cast(Any, shell))
    assert front_end.front_end() == expected


def test_without_anywidget_nothing_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    assert front_end.can_draw()
    monkeypatch.setitem(sys.modules, "anywidget", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert not front_end.can_draw()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize(("where", "is_drawn"), [("places", True), ("outputs", False)])
def test_views_of_earlier_kernels_become_live_when_they_are_seen(
    where: str, is_drawn: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[Any] = []

    class View:
        def __init__(self, number: int) -> None:
            self.number = number

        def enliven(self, key: str) -> None:
            asked.append((self.number, key))
            if self.number == 9:
                raise NotFound("there is no experiment 9")
            if self.number == 8:
                raise ValueError("a fault")
            if self.number == 0:
                raise SystemExit  # ends the thread

    monkeypatch.setattr(experiment_handles, "front_end", lambda: where)
    monkeypatch.setattr(experiment_handles, "live_view", View)
    monkeypatch.setattr(connection, "client", lambda: asked.append("client"))
    door = enliven_page()
    assert (door is not None) is is_drawn
    assert enliven_page() is door
    if door is None:
        return
    [thread] = [each for each in threading.enumerate() if each.name == "det-door"]
    assert thread.daemon
    with caplog.at_level(logging.INFO):
        for key in ("9@1", "8@1", "7@1", "0@1"):
            cast(Any, door)._handle_custom_msg({"type": "wanted", "key": key}, [])
        thread.join()
    assert asked == [
        part for number in (9, 8, 7, 0) for part in ("client", (number, f"{number}@1"))
    ]
    assert [each.levelname for each in caplog.records] == ["INFO", "ERROR"]


def test_where_nothing_can_be_drawn_no_page_is_made_live(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(experiment_handles, "front_end", lambda: "places")
    (tmp_path / "widget.js").unlink()
    assert enliven_page() is None
    assert "det-door" not in {each.name for each in threading.enumerate()}


@pytest.mark.parametrize("where", ["places", "outputs", "static", "terminal"])
def test_a_comparison_is_one_widget_where_it_can_be_drawn(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(experiment_handles, "front_end", lambda: where)
    master = cast(Client, Compared(ended(3), ended(7)))
    monkeypatch.setattr(connection, "client", lambda: master)
    compared: Any = compare(3, 7)
    bundle = compared._repr_mimebundle_()
    forms = bundle[0] if where == "outputs" else bundle
    assert (VIEW in forms) is (where == "outputs")
    assert (
        forms["text/plain"]
        == repr(compared)
        == repr(Comparison(fetch_experiments(master, [3, 7])))
    )
    assert f'key="{compared._key}"' in forms["text/html"]
    widget = compared._widget
    assert (widget is not None) is (where in ("places", "outputs"))
    if widget is not None:
        assert (widget.key, widget.comparison) == (compared._key, compared.state)
    compared._repr_mimebundle_()
    assert compared._widget is widget
    assert NotebookComparison(fetch_experiments(master, [3, 7]))._key != compared._key


def test_what_is_no_experiment_is_told_with_what_is_wanted() -> None:
    for which in (1.5, None, [7]):
        with pytest.raises(NotFound, match="expected an experiment's number or its name"):
            experiment_handles.experiment(cast(Any, which))


def test_an_experiment_is_found_by_its_number_and_by_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client: Any = SimpleNamespace(experiment=lambda number: over(id=number))
    monkeypatch.setattr(connection, "client", lambda: client)
    monkeypatch.setattr(experiment_handles, "find_by_name", lambda *given: (given[1], 7)[1])
    assert experiment_handles.experiment(12).id == 12
    assert experiment_handles.experiment("nets").id == 7


def test_a_kernel_has_one_client_and_one_that_starts_no_master(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    info = MasterInfo(
        url="http://127.0.0.1:1", token="t", pid=1, started_at=0.0, version="0",
        protocol=PROTOCOL, python="python", data_dir="/",
    )  # fmt: skip
    asked: list[Any] = []

    def require(line: str, *, may_revive: bool) -> MasterInfo:
        asked.append((line, may_revive))
        return info

    monkeypatch.setattr(connection, "connect", lambda: Session(info))
    monkeypatch.setattr(connection, "require_master", require)
    one = connection.client()
    watching = one.watching
    assert connection.client() is one is not watching
    assert live_view(7) is live_view(7)
    assert live_view(7)._client is watching.watching
    assert watching.session._locate is not None
    assert watching.session._locate() is info
    assert asked == [("%det_experiment list", True)]


def test_what_is_asked_of_a_widget_is_answered() -> None:
    from det_jupyter.front.notebook.handles.widget import answer_soon

    said: list[Any] = []
    came = threading.Event()

    def send(answer: Any) -> None:
        said.append((answer["text"], answer["error"], answer["request"]))
        came.set()

    answer_soon(cast(Client, None), 7, {"type": "tabs", "request": 3}, send)
    came.wait()
    assert said == [("// tabs.js", "", 3)]
