"""The verbs about templates of configurations."""

from __future__ import annotations

import json
from collections.abc import Sequence
from textwrap import indent

from det_jupyter.client import Client
from det_jupyter.client.drafts import located
from det_jupyter.client.tables import plain_table
from det_jupyter.config import check_sanity, read_yaml, to_yaml
from det_jupyter.errors import ConfigError, Conflict
from det_jupyter.verbs.grammar import Call
from det_jupyter.verbs.overrides import set_from_yaml
from det_jupyter.verbs.tables import Listing
from det_jupyter.wire import TemplateView
from det_jupyter.words import date

_HEADER = ("Name", "Updated", "Config")


def list_templates(call: Call) -> str:
    """Return the templates, with --detail also what is in them."""
    views = call.client.templates()
    if call.options.csv or call.options.json:
        return _data(call, views)
    if not views:
        return "No templates yet; %%det template set NAME makes one."
    if call.options.detail:
        return "\n".join(
            f"{view.name}  (set {date(view.updated_at)})\n{indent(to_yaml(view.config), '    ')}"
            for view in views
        )
    rows = [(view.name, date(view.updated_at), ", ".join(view.config)) for view in views]
    return plain_table(("name", "set", "gives"), rows)


def _data(call: Call, views: Sequence[TemplateView]) -> str:
    rows = [(view.name, date(view.updated_at), view.config) for view in views]
    if call.options.json:
        named = [dict(zip(_HEADER, row, strict=True)) for row in rows]
        return json.dumps(named, indent=2, ensure_ascii=False)
    cells = [(name, updated, json.dumps(config)) for name, updated, config in rows]
    return Listing(header=_HEADER, rows=cells).csv().rstrip("\n")


def show_template(call: Call) -> str:
    """Return what is in a template."""
    return to_yaml(call.client.template(call.options.name).config).rstrip("\n")


def create_template(call: Call) -> str:
    """Keep a cell's YAML, or a file's, as a template of a name that is free."""
    name = call.options.name
    if any(view.name == name for view in call.client.templates()):
        raise Conflict(
            f"there is a template {name} already; %%det template set {name} replaces it"
        )
    return set_template(call)


def set_template(call: Call) -> str:
    """Keep a cell's YAML, or a file's, as a template."""
    name = call.options.name
    above = f"%%det template {call.options.verb.name} NAME"
    return set_from_yaml(call, lambda text: _keep(call.client, name, text), above)


def _keep(client: Client, name: str, text: str) -> str:
    reading = read_yaml(text)
    problems = reading.problems + check_sanity(reading.document)
    if problems:
        raise located(problems, reading)
    try:
        view = client.set_template(name, reading.document)
    except ConfigError as error:
        raise located(error.problems, reading) from None
    is_new = view.created_at == view.updated_at
    return f"Template {name} is {'set' if is_new else 'replaced'}: {', '.join(view.config)}."


def delete_template(call: Call) -> str:
    """Forget a template."""
    name = call.options.name
    call.client.delete_template(name)
    return f"Template {name} is deleted; experiments made with it keep their own."
