"""What exists in Python and in TypeScript must be the same in both."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, ClassVar, Literal, TypedDict

import pytest
from pydantic import Field

from det_jupyter._version import __version__
from det_jupyter.client.tables import csv_text
from det_jupyter.contract.messages import TrialView, Wire
from det_jupyter.contract.values import text as words
from det_jupyter.contract.values.text import size
from det_jupyter.view.model.__main__ import answers_module, interface, state_module
from det_jupyter.view.model.search_state import TrialRow
from det_jupyter.view.model.status_looks import Status

FRONTEND = Path(__file__).parents[4] / "labextension"
# Lowest first; "." is the modules on top.
ROOMS = (
    "model",
    "dom",
    "charts",
    "series",
    "verdict",
    "tabs",
    "logs",
    "metrics",
    "orders",
    "timings",
    "system",
    "config",
    "checkpoints",
    "cluster",
    "experiment",
    "search",
    "compare",
    "page",
    ".",
    "lab",
    "lab/connection",
    "lab/recorded",
    "lab/sidebar",
    "lab/page",
    "lab/shell",
    "lab/running",
    "lab/index.ts",  # puts them together
)
CASES = json.loads((FRONTEND / "test/format-cases.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("name", "module"), [("state", state_module), ("answers", answers_module)]
)
def test_interfaces_of_states_and_answers_are_generated_from_their_classes(
    name: str, module: Callable[[], str]
) -> None:
    written = (FRONTEND / f"src/model/{name}.ts").read_text(encoding="utf-8")
    assert written == module(), "stale: see the head of det_jupyter/view/model/__main__.py"


def test_a_message_of_which_some_fields_are_used_has_these() -> None:
    assert interface(TrialView, ["id", "hparams"]) == (
        "export interface ITrialView {\n  id: number;\n  hparams: Record<string, unknown>;\n}\n"
    )


def test_pages_declare_no_answer_by_hand() -> None:
    typed = re.compile(r"\b(?:ask|get|post|put|delete|request)<\s*(?:readonly )?\{")
    sources = sorted((FRONTEND / "src").rglob("*.ts"))
    found = [path.name for path in sources if typed.search(path.read_text(encoding="utf-8"))]
    assert not found, "their types come from model/answers.ts"


def test_each_kind_of_field_has_its_typescript() -> None:
    class Sample(TypedDict):
        rows: list[TrialRow]
        chosen: TrialRow | None
        values: list[float | None]
        scale: Literal["linear", "log"]
        status: Status

    assert interface(Sample) == (
        "export interface ISample {\n"
        "  rows: ITrialRow[];\n"
        "  chosen: ITrialRow | null;\n"
        "  values: (number | null)[];\n"
        "  scale: 'linear' | 'log';\n"
        "  status: Status;\n"
        "}\n"
    )


def test_a_message_has_the_fields_that_it_inherits() -> None:
    class Listed(Wire):
        id: Annotated[int, Field(ge=0)]
        unit: ClassVar[str] = "s"

    class Line(Listed):
        notebook: str | None = None

    assert interface(Line) == (
        "export interface ILine {\n  id: number;\n  notebook: string | null;\n}\n"
    )


def cell(text: str) -> str:
    """Return a line of CSV with one cell, without its end."""
    return csv_text([text], []).removesuffix("\n")


@pytest.mark.parametrize("name", sorted(CASES))
def test_values_are_written_as_the_front_end_writes_them(name: str) -> None:
    write = cell if name == "csv" else size if name == "size" else getattr(words, name)
    assert [[value, write(value)] for value, _ in CASES[name]] == CASES[name]


def test_rooms_of_the_front_end_import_only_those_below() -> None:
    wrong = []
    for path in sorted((FRONTEND / "src").rglob("*.ts")):
        for name in re.findall(r"from '(\.{1,2}/.*?)'", path.read_text(encoding="utf-8")):
            other = room_of((path.parent / name).resolve())
            if ROOMS.index(other) > ROOMS.index(room_of(path)):
                wrong.append(f"{path} imports {name}")
    assert not wrong


def room_of(path: Path) -> str:
    within = path.relative_to(FRONTEND / "src")
    return within.as_posix() if within.as_posix() in ROOMS else within.parent.as_posix()


def test_versions_of_the_packages_agree() -> None:
    package = json.loads((FRONTEND / "package.json").read_text(encoding="utf-8"))
    lock = json.loads((FRONTEND / "package-lock.json").read_text(encoding="utf-8"))
    assert package["version"] == lock["version"] == __version__


def test_lock_file_names_no_registry() -> None:
    lock = json.loads((FRONTEND / "package-lock.json").read_text(encoding="utf-8"))
    named = [package for package in lock["packages"].values() if "resolved" in package]
    assert all(package.get("link") for package in named)  # folders of ours
