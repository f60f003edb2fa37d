"""Verbs about processes in the background: the master's log and files, and TensorBoards."""

from __future__ import annotations

import json
import signal
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from det_jupyter._version import __version__
from det_jupyter.client import Client
from det_jupyter.contract.host import paths
from det_jupyter.contract.host.tensorboards import Board
from det_jupyter.contract.messages import PROTOCOL, MasterInfo
from det_jupyter.errors import DetError, NotFound, UsageError
from det_jupyter.front.cli import master_verbs, tensorboard_verbs
from det_jupyter.front.notebook.complete.magic_parsers import det_parser
from det_jupyter.front.verbs.grammar import Call, parse
from det_jupyter.master import cli as master_cli
from tests.unit.view.view_samples import experiment, trial


def call(**options: Any) -> Call:
    return Call(
        options=cast(Any, SimpleNamespace(**{"words": "det tensorboard start", **options})),
        client=cast(Client, Master()),
        experiment=cast(Any, None),
    )


class Master:
    """Has experiments below 10 and trials below 100; trial 31 is of experiment 3."""

    def experiment(self, number: int) -> Any:
        if number >= 10:
            raise NotFound(f"there is no experiment {number}")
        return experiment(trial(), id=number)

    def trial(self, number: int) -> Any:
        if number >= 100:
            raise NotFound(f"there is no trial {number}")
        return trial(id=number, experiment_id=number // 10)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("log_dir", "data_dir"):
        monkeypatch.setattr(paths, name, lambda: tmp_path)
    monkeypatch.setattr(paths, "pools_file", lambda: tmp_path / "pools.yaml")
    return tmp_path


def test_the_end_of_the_masters_log_is_printed(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(NotFound, match="there is no log yet: "):
        master_verbs.logs(call(tail=2, follow=False))
    (home / "master.log").write_text("a\nb\nc\n")
    assert master_verbs.logs(call(tail=2, follow=False)) == ""
    assert capsys.readouterr().out == "b\nc\n"


def test_a_log_is_followed_also_after_it_was_rotated(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = home / "master.log"
    log.write_text("a\n")

    def happen() -> Iterator[None]:
        with log.open("a") as file:
            file.write("b\n")
        yield
        log.rename(home / "master.log.1")
        yield
        log.write_text("c\n")
        yield
        raise KeyboardInterrupt

    happens = happen()
    monkeypatch.setattr(master_verbs, "time", SimpleNamespace(sleep=lambda _: next(happens)))
    with pytest.raises(KeyboardInterrupt):
        master_verbs.logs(call(tail=9, follow=True))
    assert capsys.readouterr().out == "a\nb\nc\n"


def test_the_configuration_is_where_things_are_and_what_the_pools_file_says(home: Path) -> None:
    where = [f"data: {home}", f"logs: {home}", f"pools_file: {home}/pools.yaml"]
    assert master_verbs.config(call()).splitlines() == where
    (home / "pools.yaml").write_text("- pool_name: a\n\n")
    assert master_verbs.config(call()).splitlines() == [*where, "- pool_name: a"]


@pytest.mark.parametrize(
    "how", [{"json": True, "output": None}, {"json": False, "output": "json"},
            {"json": False, "output": None}]
)  # fmt: skip
def test_what_is_known_of_the_master_has_no_token(
    how: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    info = MasterInfo(
        url="http://127.0.0.1:1", token="secret", pid=7, started_at=0.0, version="0",
        protocol=PROTOCOL, python="python", data_dir="/",
    )  # fmt: skip
    monkeypatch.setattr(master_verbs, "require_master", lambda start: None)
    monkeypatch.setattr(master_verbs, "announced_master", lambda: info)
    text = master_verbs.info(call(**how))
    assert "secret" not in text
    if how == {"json": False, "output": None}:
        assert text.splitlines()[0] == "url: http://127.0.0.1:1"
    else:
        assert json.loads(text)["pid"] == 7
        assert text.splitlines()[1] == '  "url": "http://127.0.0.1:1",'
    monkeypatch.setattr(master_verbs, "announced_master", lambda: None)
    assert master_verbs.info(call(**how)) == ""
    assert master_verbs.version(call()) == __version__


def test_a_word_about_the_master_is_its_function(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("start", "restart", "stop", "status"):
        monkeypatch.setattr(master_cli, name, lambda options, name=name: name)
        options = call(verb=SimpleNamespace(name=name))
        assert cast(Any, master_verbs.control(options)) == name


class Running(Board):
    """A TensorBoard that may not end."""

    def end(self) -> bool:
        return self.id != 9


def board(number: int, **changes: Any) -> Board:
    fields = {
        "id": number, "pid": 40 + number, "birth": "b", "url": f"http://localhost:{number}/",
        "experiments": [], "trials": [], "logdir": f"/tmp/{number}", "started_at": 1e9,
    }  # fmt: skip
    return Running(**{**fields, **changes})


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> list[Board]:
    boards: list[Board] = []
    monkeypatch.setattr(tensorboard_verbs, "running_boards", lambda: iter(boards))
    return boards


def test_tensorboards_that_run_are_a_table(running: list[Board]) -> None:
    listed = call(**vars(parse(det_parser(), "alerts list")))  # all tables have these options
    assert "No TensorBoard runs." in tensorboard_verbs.list_all(listed)
    running += [board(1, experiments=[3, 4]), board(2, trials=[31])]
    lines = [line.split() for line in tensorboard_verbs.list_all(listed).splitlines()]
    assert lines[1][:4] == ["1", "3,", "4", "-"]
    assert lines[2][:4] == ["2", "-", "31", "http://localhost:2/"]
    assert lines[2][-1] == "/tmp/2"


def test_tensorboards_are_ended_by_their_numbers(running: list[Board]) -> None:
    running += [board(1), board(2), board(9)]
    ended = tensorboard_verbs.kill(call(numbers=[1, 2], force=False))
    assert ended.splitlines() == ["TensorBoard 1 has ended.", "TensorBoard 2 has ended."]
    with pytest.raises(NotFound, match="there is no TensorBoard 5; there are: 1, 2, 9"):
        tensorboard_verbs.kill(call(numbers=[5], force=False))
    assert tensorboard_verbs.kill(call(numbers=[5, 1], force=True)) == "TensorBoard 1 has ended."
    with pytest.raises(DetError, match=r"TensorBoard 9 \(pid 49\) does not end"):
        tensorboard_verbs.kill(call(numbers=[9], force=True))


@pytest.mark.parametrize(
    ("variables", "is_shown"),
    [({}, False), ({"DISPLAY": ":0"}, True), ({"WAYLAND_DISPLAY": "w"}, True)],
)  # fmt: skip
def test_a_page_is_opened_where_there_are_windows(
    variables: dict[str, str],
    is_shown: bool,
    running: list[Board],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    running.append(board(1))
    assert tensorboard_verbs.open_one(call(number=1)) == (
        "TensorBoard is running at: http://localhost:1/"
    )
    assert opened == ["http://localhost:1/"] * is_shown


GIVEN: dict[str, Any] = {
    "ids": [], "trial_ids": None, "no_serve": False, "foreground": False, "logdir": None,
    "port": None, "detach": False, "no_browser": True, "parent": None,
}  # fmt: skip


def started(monkeypatch: pytest.MonkeyPatch, **given: Any) -> tuple[str | int, list[Any]]:
    starts: list[Any] = []

    def start(experiments: list[int], trials: list[int], **how: Any) -> Board:
        starts.append((experiments, trials, how))
        return board(5)

    monkeypatch.setattr(tensorboard_verbs, "check_installed", lambda: None)
    monkeypatch.setattr(tensorboard_verbs, "start_board", start)
    return tensorboard_verbs.start(call(**{**GIVEN, **given})), starts


def test_a_tensorboard_is_started_in_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    text, starts = started(monkeypatch, trial_ids=[31, 32], port=7)
    assert text == (
        "TensorBoard is running at: http://localhost:5/\n"
        "`det tensorboard open 5` shows it again, `det tensorboard kill 5` ends it."
    )
    assert starts == [([], [31, 32], {"logdir": None, "port": 7})]
    assert started(monkeypatch, trial_ids=[31], detach=True)[0] == "5"


@pytest.mark.parametrize("given", [{}, {"ids": [[range(3, 4)]], "trial_ids": [31]}])
def test_experiments_or_trials_are_to_be_given(
    given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match="det tensorboard start: give numbers of experiments, or"):
        started(monkeypatch, **given)


def test_what_is_not_there_has_no_tensorboard(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotFound, match="there is no trial 100"):
        started(monkeypatch, trial_ids=[31, 100])


@pytest.mark.parametrize("port", [None, 0, 7])
def test_a_tensorboard_in_the_foreground_serves_until_it_ends(
    port: int | None, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    did: list[Any] = []

    class Process:
        def __init__(self, command: list[str], preexec_fn: Any) -> None:
            did.append(command[1:])

        def terminate(self) -> None:
            did.append("terminate")

    def wait(process: Process, parent: int | None) -> int:
        did.append(parent)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        return 3

    def own(*_: Any) -> None:
        did.append("SIGTERM was not taken")

    before = signal.signal(signal.SIGTERM, own)
    monkeypatch.setattr("subprocess.Popen", Process)
    monkeypatch.setattr(tensorboard_verbs, "wait_for", wait)
    monkeypatch.setattr(
        tensorboard_verbs,
        "write_event_files",
        lambda client, number, trials, folder: SimpleNamespace(stop=lambda: did.append("stop")),
    )
    monkeypatch.chdir(home)
    given = {"ids": [[range(3, 4)]], "foreground": True, "port": port, "parent": 4}
    try:
        status, starts = started(monkeypatch, **given)
    finally:
        after = signal.signal(signal.SIGTERM, before)
    more = [] if port is None else ["--port", str(port)]
    assert (status, starts) == (3, [])
    assert did == [
        ["-m", "tensorboard.main", "--logdir", str(home / "tensorboard"), *more], 4,
        "terminate", "stop",
    ]  # fmt: skip
    assert after is own


def test_files_are_written_without_a_server(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Any] = []
    stopped: list[int] = []

    def write(client: Any, number: int, trials: Any, folder: Path) -> Any:
        written.append((number, trials, folder))
        return SimpleNamespace(stop=lambda: stopped.append(number))

    monkeypatch.setattr(tensorboard_verbs, "write_event_files", write)
    text, starts = started(
        monkeypatch, trial_ids=[31, 42, 32], no_serve=True, logdir=str(home / "tb")
    )
    root = home / "tb"
    assert text == f"Wrote {root}; `tensorboard --logdir {root}` shows it."
    assert written == [(3, [31, 32], root / "experiment-3"), (4, [42], root / "experiment-4")]
    assert (starts, stopped) == ([], [3, 4])
