"""What exists in Python and in TypeScript must be the same in both."""

from __future__ import annotations

import json
import re
import types
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

import pytest

from det_jupyter import words
from det_jupyter._version import __version__
from det_jupyter.view.model import cluster, experiment
from det_jupyter.words import size

FRONTEND = Path(__file__).parents[3] / "labextension"
MODEL_TS = "".join(
    (FRONTEND / "src" / name).read_text(encoding="utf-8")
    for name in ("model/state.ts", "model/cluster.ts")
)
# Lowest first; "." is the modules on top.
ROOMS = ("model", "dom", "charts", "cluster", "experiment", "search", ".")
CASES = json.loads((FRONTEND / "test/format-cases.json").read_text(encoding="utf-8"))
NAMED = {
    experiment.Status: "Status",
    experiment.Verb: "Verb",
    cluster.SlotState: "SlotState",
}
CLASSES = {
    name: each
    for module in (experiment, cluster)
    for name, each in vars(module).items()
    if is_typeddict(each)
}


def typescript(hint: Any) -> str:
    """Return the TypeScript of a type that a state is made of."""
    if hint in NAMED:
        return NAMED[hint]
    if is_typeddict(hint):
        return f"I{hint.__name__}"
    if get_origin(hint) in (Union, types.UnionType):
        return " | ".join(typescript(each) for each in get_args(hint))
    if get_origin(hint) is list:
        [item] = get_args(hint)
        text = typescript(item)
        return f"({text})[]" if " " in text else f"{text}[]"
    if get_origin(hint) is Literal:
        return " | ".join(f"'{value}'" for value in get_args(hint))
    plain = {str: "string", bool: "boolean", int: "number", float: "number"}
    return "null" if hint is type(None) else plain[hint]


def interface(name: str) -> dict[str, str]:
    """Return the fields of a TypeScript interface."""
    [body] = re.findall(rf"export interface {name} \{{(.*?)\n\}}", MODEL_TS, re.DOTALL)
    return dict(re.findall(r"^  (\w+): (.*);$", body, re.MULTILINE))


@pytest.mark.parametrize("cls", CLASSES.values(), ids=CLASSES)
def test_each_class_of_the_state_has_its_interface(cls: type) -> None:
    fields = {name: typescript(hint) for name, hint in get_type_hints(cls).items()}
    assert interface(f"I{cls.__name__}") == fields


@pytest.mark.parametrize("named", NAMED, ids=NAMED.values())
def test_each_name_of_a_state_or_verb_is_known_to_the_front_end(named: Any) -> None:
    [text] = re.findall(rf"export type {NAMED[named]} =([^;]*);", MODEL_TS)
    assert tuple(re.findall(r"'(\w+)'", text)) == get_args(named)


@pytest.mark.parametrize("name", sorted(CASES))
def test_numbers_are_written_as_the_front_end_writes_them(name: str) -> None:
    write = size if name == "size" else getattr(words, name)
    assert [[value, write(value)] for value, _ in CASES[name]] == CASES[name]


def test_rooms_of_the_front_end_import_only_those_below() -> None:
    wrong = []
    for path in sorted((FRONTEND / "src").rglob("*.ts")):
        room = path.parent.relative_to(FRONTEND / "src").as_posix()
        for name in re.findall(r"from '(\.{1,2}/.*?)'", path.read_text(encoding="utf-8")):
            other = (path.parent / name).resolve().parent.name.replace("src", ".")
            if ROOMS.index(other) > ROOMS.index(room):
                wrong.append(f"{path.name} in {room}/ imports {name}")
    assert not wrong


def test_versions_of_the_packages_agree() -> None:
    package = json.loads((FRONTEND / "package.json").read_text(encoding="utf-8"))
    lock = json.loads((FRONTEND / "package-lock.json").read_text(encoding="utf-8"))
    assert package["version"] == lock["version"] == __version__


def test_lock_file_names_no_registry() -> None:
    lock = json.loads((FRONTEND / "package-lock.json").read_text(encoding="utf-8"))
    assert not [name for name, package in lock["packages"].items() if "resolved" in package]
