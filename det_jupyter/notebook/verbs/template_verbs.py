"""What `%det template <verb>` and `%%det template set` do."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from IPython.core.error import UsageError

from det_jupyter.config import check_sanity, read_yaml, to_yaml
from det_jupyter.errors import ConfigError
from det_jupyter.notebook.handles import handles
from det_jupyter.notebook.handles.templates import read_file
from det_jupyter.notebook.submit.drafts import below_magic, located
from det_jupyter.verbs.tables import plain_table
from det_jupyter.wire import TemplateView


def run(options: argparse.Namespace, cell: str | None) -> None:
    """Carry out one parsed line, with the cell below it if there is one."""
    if cell is not None and options.verb != "set":
        raise UsageError(f"%%det template {options.verb}: takes no cell; write %det")
    match options.verb:
        case "list" | "ls":
            print(_listing(handles.client().templates(), with_detail=options.detail))
        case "show" | "describe":
            print(to_yaml(handles.client().template(options.name).config), end="")
        case "set":
            _set(options, cell)
        case _:
            handles.client().delete_template(options.name)
            print(f"Template {options.name} is deleted; experiments made with it keep their own.")


def _set(options: argparse.Namespace, cell: str | None) -> None:
    if (cell is None) == (options.file is None):
        raise UsageError(
            "%det template set: give either a file, or %%det template set NAME above YAML"
        )
    if cell is not None:
        _keep(options.name, below_magic(cell))
        return
    path = Path(options.file)
    text = read_file(path)
    try:
        _keep(options.name, text)
    except ConfigError as error:
        raise ConfigError([f"{path}: {problem}" for problem in error.problems]) from None


def _keep(name: str, text: str) -> None:
    reading = read_yaml(text)
    problems = reading.problems + check_sanity(reading.document)
    if problems:
        raise located(problems, reading)
    try:
        view = handles.client().set_template(name, reading.document)
    except ConfigError as error:
        raise located(error.problems, reading) from None
    is_new = view.created_at == view.updated_at
    print(f"Template {name} is {'set' if is_new else 'replaced'}: {', '.join(view.config)}.")


def _listing(views: Sequence[TemplateView], *, with_detail: bool) -> str:
    rows = [(view.name, _day(view.updated_at), ", ".join(view.config)) for view in views]
    if not rows:
        return "No templates yet; %%det template set NAME makes one."
    if not with_detail:
        return plain_table(("name", "set", "gives"), rows)
    return "\n".join(
        f"{view.name}  (set {_day(view.updated_at)})\n{_indented(to_yaml(view.config))}"
        for view in views
    )


def _day(at: float) -> str:
    return datetime.fromtimestamp(at).strftime("%Y-%m-%d %H:%M")


def _indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())
