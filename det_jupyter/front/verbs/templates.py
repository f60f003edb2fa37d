"""Verbs about templates of configurations."""

from __future__ import annotations

from textwrap import indent

from det_jupyter.client import Client
from det_jupyter.client.submitting.drafts import located
from det_jupyter.config import check_sanity, read_yaml, to_yaml
from det_jupyter.contract.values.text import date
from det_jupyter.errors import ConfigError, Conflict
from det_jupyter.front.verbs.grammar import Call
from det_jupyter.front.verbs.listings import Listing, form_of, render
from det_jupyter.front.verbs.yaml_input import set_from_yaml


def list_templates(call: Call) -> str:
    """Return the templates, with --detail also their configurations."""
    views = call.client.templates()
    listing = Listing(
        header=("Name", "Updated", "Config"),
        rows=[(view.name, date(view.updated_at), ", ".join(view.config)) for view in views],
        data=[(view.name, date(view.updated_at), view.config) for view in views],
        if_empty=f"No templates yet; {_line(call, 'set NAME')} makes one.",
    )
    if not call.options.detail or form_of(call.options):
        return render(listing, call.options)
    return "\n".join(
        f"{view.name}  (set {date(view.updated_at)})\n{indent(to_yaml(view.config), '    ')}"
        for view in views
    )


def show_template(call: Call) -> str:
    """Return a template's configuration as YAML."""
    return to_yaml(call.client.template(call.options.name).config).rstrip("\n")


def create_template(call: Call) -> str:
    """Store the YAML of a cell or file as a new template."""
    name = call.options.name
    if any(view.name == name for view in call.client.templates()):
        raise Conflict(
            f"there is a template {name} already; `{_line(call, f'set {name}')}` replaces it"
        )
    return set_template(call)


def set_template(call: Call) -> str:
    """Store the YAML of a cell or file as a template; one of the same name is replaced."""
    name = call.options.name
    above = _line(call, f"{call.options.verb.name} NAME")
    return set_from_yaml(call, lambda text: _store(call.client, name, text), above)


def _line(call: Call, words: str) -> str:
    return f"{call.reader.above_yaml}{call.reader.det} template {words}"


def _store(client: Client, name: str, text: str) -> str:
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
    """Delete a template."""
    name = call.options.name
    call.client.delete_template(name)
    return f"Template {name} is deleted; experiments made with it keep their own."
