"""The program `det`: its exit status and what it prints in odd circumstances."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from det_jupyter._version import __version__
from det_jupyter.errors import BucketProblem, MasterUnreachable
from det_jupyter.front.cli import __main__ as program
from det_jupyter.front.cli import connecting, shell_completion
from det_jupyter.front.cli.__main__ import main
from tests.unit.front.cli.conftest import Typed


def test_what_the_encoding_lacks_is_printed_as_a_question_mark(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def run(argv: Sequence[str]) -> int:
        print("🎉", *argv)
        return 7

    written = io.BytesIO()
    monkeypatch.setattr(program, "run", run)
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, encoding="ascii"))
    monkeypatch.setattr("sys.argv", ["det", "e"])
    assert main() == 7
    assert written.getvalue() == b"? e\n"


def test_an_interrupt_and_a_closed_pipe_are_no_failures(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    errors: list[BaseException] = [KeyboardInterrupt(), BrokenPipeError()]

    def run(argv: Sequence[str]) -> int:
        raise errors.pop(0)

    monkeypatch.setattr(program, "run", run)
    with (tmp_path / "out").open("w") as out:
        monkeypatch.setattr("sys.stdout", out)
        assert main([]) == 130
        assert main([]) == 0
        out.write("left over")
    assert (tmp_path / "out").read_text() == "", "nothing can be written there any more"


@pytest.mark.parametrize(
    ("words", "status", "out", "err"),
    [
        (["-v"], 0, f"{__version__}\n", ""),
        (["--version"], 0, f"{__version__}\n", ""),
        (["version"], 0, f"{__version__}\n", ""),
        (["version", "--odd"], 2, "", "unrecognized arguments: --odd"),
        ([], 0, "Submit, see and steer experiments", ""),
        (["e", "list", "--help"], 0, "--state", ""),
        (["-m", "host", "e"], 2, "", "det: -m: det talks to your own master on this computer"),
        (["--user=ann", "e"], 2, "", "det: --user: det talks to your own master"),
    ],
)
def test_lines_that_need_no_master_are_answered_without_one(
    words: list[str], status: int, out: str, err: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == status
    printed = capsys.readouterr()
    assert out in printed.out
    assert err in printed.err
    assert bool(printed.out) is bool(out)
    assert bool(printed.err) is bool(err)


@pytest.mark.parametrize(
    ("variables", "is_told"),
    [
        ({}, False),
        ({"DET_MASTER": "host"}, True),
        ({"DET_MASTER": "host", "DET_ALLOCATION_ID": "3.7.1"}, False),
    ],
)
def test_a_variable_that_has_no_effect_is_told_of(
    variables: dict[str, str],
    is_told: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("DET_MASTER", "DET_ALLOCATION_ID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert main(["version"]) == 0
    assert ("Note: DET_MASTER has no effect" in capsys.readouterr().err) is is_told


def test_a_session_is_opened_with_the_first_request_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[object] = []

    def connect() -> object:
        asked.append(1)
        return "session"

    client: Any = connecting.LazyClient(cast(Any, connect))
    assert asked == []
    assert client.session == client.session == "session"
    assert asked == [1]
    assert not hasattr(client, "other")
    located: list[object] = []

    def require(line: str, **how: bool) -> str:
        located.append((line, how))
        return "info"

    monkeypatch.setattr(connecting, "require_master", require)
    monkeypatch.setattr(connecting, "Session", lambda info, locate: (info, locate))
    info, locate = cast(Any, connecting.connect_to_running())
    assert (info, locate()) == ("info", "info")
    assert located == [("det master start", {}), ("det master start", {"may_revive": True})]


def test_what_is_not_there_is_told_with_what_is(
    master: object, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["e", "describe", "91"]) == 1
    assert "there is no experiment 91" in (said := capsys.readouterr().err)
    assert "8" in said.partition("91")[2], "the newest one"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell_asks_for_words(det: Typed, shell: str) -> None:
    script = det("completion", shell).out
    assert "det completion words -- " in script
    assert ("compdef" in script, "complete -c" in script) == (shell == "zsh", shell == "fish")


def test_without_a_master_tab_offers_what_needs_none(
    det: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise MasterUnreachable("none runs")

    monkeypatch.setattr(shell_completion, "connect_to_running", refuse)
    assert det("completion", "words", "--", "e", "kill", "").out == ""
    assert "describe" in det("completion", "words", "--", "e", "d").out


def test_an_error_cannot_steer_the_terminal(det: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise BucketProblem("x/\x1b]0;title\x07name is damaged:\n a\x08", "damaged")

    monkeypatch.setattr(connecting, "carry_out", refuse)
    typed = det("e", "list")
    assert (typed.status, typed.err) == (1, "x/name is damaged:\n a\N{REPLACEMENT CHARACTER}\n")
