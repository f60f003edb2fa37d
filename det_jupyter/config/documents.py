"""The reference of all keys, generated: Markdown for people, JSON Schema for editors."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from typing import Any

from det_jupyter.config.experiment import ExperimentConfig
from det_jupyter.config.keys import NO_MEANING, NOT_YET, TAGS
from det_jupyter.config.prose import (
    ENTRYPOINTS,
    HALVING,
    HYPERPARAMETERS,
    INTRODUCTION,
    LENGTHS,
    OLDER,
    YAML,
)
from det_jupyter.config.reference import ANYTHING, FieldHelp, describe, describe_field, known_keys
from det_jupyter.config.sections import DEVICE_KINDS
from det_jupyter.config.tree import kinds
from det_jupyter.searcher.methods import SECTIONS

OTHER_DEFAULTS = {
    "name": ("three random words", "the entrypoint", "it says what ran"),
    "description": ("none", "empty", "the same to a reader"),
    "min_validation_period": (
        "`{batches: 0}`",
        "an epoch if max_length is in epochs, the lowest rung with a time_metric",
        "a curve has to have points, and a search something to judge",
    ),
    "checkpoint_storage": (
        "what the master is set up with",
        "`shared_fs` in det_jupyter's own data folder",
        "there is nothing to set up",
    ),
    "preemption_timeout": ("none, for which its master takes 3600", "`3600`", "it is shown"),
    "resources.is_single_node": ("none", "`false`", "it means the same"),
    "profiling.enabled": (
        "`false`",
        "none: timings in short, and system metrics",
        "they cost next to nothing, and what is slow is seen without another run",
    ),
    "optimizations.tensor_fusion_threshold": (
        "64 MB, Horovod's",
        "25 MB, torch's",
        "gradients are exchanged by torch",
    ),
    "log_policies": (
        "two that name CUDA's and ECC errors, and do nothing",
        "none",
        "the end of a failed trial's log is shown anyway",
    ),
}
_TOO_EARLY = "In this version the following is accepted and has no effect yet; a notice says so."
_MEANINGLESS = "These keys of Determined are accepted as they are and ignored; a notice says so."
_WRITTEN = {"entrypoint": ENTRYPOINTS, "hyperparameters": HYPERPARAMETERS}
_NONE = FieldHelp("", "", None, "")
_BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum"}
_SCALAR: dict[str, Any] = {"type": ["string", "number", "boolean", "null", "array"]}
_VARIABLES: dict[str, Any] = {
    "type": "array",
    "items": {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*(=|$)"},
}


def markdown() -> str:
    """Return the reference as it is in docs/configuration.md."""
    parts = [INTRODUCTION, "## The whole\n", _table(_with_meaning(""))]
    for section in known_keys(""):
        if section in TAGS:
            parts += _kinds(section)
        elif section in _WRITTEN:
            parts.append(_WRITTEN[section])
        elif rows := _with_meaning(section):
            parts += [f"## {section}\n", _table(rows)]
    parts += [LENGTHS, OLDER, YAML, _other_defaults()]
    parts += [f"## Not yet\n\n{_TOO_EARLY}\n", _notes(NOT_YET)]
    parts += [f"## Without meaning here\n\n{_MEANINGLESS}\n", _notes(NO_MEANING)]
    return "\n".join(parts)


def _other_defaults() -> str:
    rows = [f"| `{path}` | {' | '.join(cells)} |" for path, cells in OTHER_DEFAULTS.items()]
    head = ["## Other defaults", "", "| key | Determined | here | why |", "|---|---|---|---|"]
    return "\n".join([*head, *rows]) + "\n"


def _with_meaning(section: str, kind: str = "") -> list[FieldHelp]:
    """Return the keys of a section, or of one kind of it, but for those without a meaning here."""
    if section in NO_MEANING or (describe(section) or _NONE).type == "length":
        return []
    document = {section: {TAGS[section]: kind}} if kind else None
    rows = known_keys(section, document).values()
    return [row for row in rows if row.path not in NO_MEANING and row.type != ANYTHING]


def _kinds(section: str) -> Iterator[str]:
    """Yield what all kinds of a section have, then what each has besides."""
    tag = TAGS[section]
    by_kind = {name: _with_meaning(section, name) for name in kinds(section)}
    common = set.intersection(*({row.path for row in rows} for rows in by_kind.values()))
    yield f"## {section}\n\nEvery kind has\n"
    yield _table([row for row in known_keys(section).values() if row.path in common])
    if section == "searcher":
        yield HALVING
    for name, kind in kinds(section).items():
        yield f"### {tag}: {name}\n\n{inspect.cleandoc(kind.__doc__ or '')}\n"
        if rows := [row for row in by_kind[name] if row.path not in common]:
            yield _table(rows)


def _table(rows: list[FieldHelp]) -> str:
    lines = ["| key | type | default | meaning |", "|---|---|---|---|"]
    for row in rows:
        default = "*required*" if row.is_required else _default(row)
        name = row.path.rpartition(".")[2]
        remark = f" *{row.note[0].upper()}{row.note[1:]}.*" if row.note else ""
        lines.append(f"| `{name}` | {row.type} | {default} | {row.text}{remark} |")
    return "\n".join(lines) + "\n"


def _default(row: FieldHelp) -> str:
    if row.default is None:
        return ""
    is_words = isinstance(row.default, str) and " " in row.default
    return row.default if is_words else f"`{_as_yaml(row.default)}`"


def _as_yaml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {item}" for key, item in value.items()) + "}"
    return value if isinstance(value, str) and value else json.dumps(value)


def _notes(notes: dict[str, str]) -> str:
    rows = [f"| `{path}` | {note[0].upper()}{note[1:]}. |" for path, note in notes.items()]
    return "\n".join(["| key | |", "|---|---|", *rows]) + "\n"


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of what a user writes: what is filled in is not required."""
    schema = ExperimentConfig.model_json_schema()
    sections = schema["$defs"] | {"ExperimentConfig": schema}
    for name, section in sections.items():
        section.pop("title", None)
        _name_bounds(section)
        for key, field in section.get("properties", {}).items():
            field.pop("title", None)
            field["description"] = describe_field(name, key)
    schema["required"] = ["entrypoint", "searcher"]
    for searcher in SECTIONS.values():
        if searcher.is_endless({}):
            schema["$defs"][searcher.__name__]["required"].remove("max_length")  # for commands
    schema["properties"]["template"] = {
        "type": "string",
        "description": "Name of the template that the configuration is laid over.",
    }
    schema["title"] = "Configuration of a det_jupyter experiment"
    schema["properties"]["hyperparameters"] |= {"additionalProperties": _ref("Hyperparameter")}
    _allow_short_forms(schema["$defs"])
    schema["$defs"]["Hyperparameter"] = _hyperparameter()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _name_bounds(schema: Any) -> None:
    """Give bounds their names in JSON Schema; behind a validator pydantic leaves its own."""
    if isinstance(schema, dict):
        for ours, theirs in _BOUNDS.items():
            if isinstance(schema.get(ours), (int, float)):
                schema[theirs] = schema.pop(ours)
    for item in schema.values() if isinstance(schema, dict) else schema:
        if isinstance(item, (dict, list)):
            _name_bounds(item)


def _allow_short_forms(sections: dict[str, Any]) -> None:
    """Say what validators read besides the forms that they return."""
    action = sections["LogPolicy"]["properties"]["action"]
    action["anyOf"].append({"type": "object", "properties": {"type": action["anyOf"][0]}})
    variables = sections["Environment"]["properties"]["environment_variables"]
    described = variables.get("description", "")
    kinds = {kind: _VARIABLES for kind in (*DEVICE_KINDS, "gpu")}
    by_kind = {"type": "object", "properties": kinds, "additionalProperties": False}
    variables.clear()
    variables |= {"anyOf": [_VARIABLES, by_kind], "default": [], "description": described}


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/$defs/{name}"}


def _hyperparameter() -> dict[str, Any]:
    number, count = {"type": "number"}, {"type": "integer", "minimum": 1}
    whole = {"type": "integer"}
    ends = {"minval": number, "maxval": number, "count": count}
    return {
        "anyOf": [
            _SCALAR,
            _typed("const", {"val": {}}),
            _typed("int", {"minval": whole, "maxval": whole, "count": count}),
            _typed("double", ends),
            _typed("log", {"base": {"type": "number", "exclusiveMinimum": 0}} | ends),
            _typed("categorical", {"vals": {"type": "array", "minItems": 1}}),
            {
                "type": "object",
                "not": {"required": ["type"]},
                "additionalProperties": _ref("Hyperparameter"),
            },
        ]
    }


def _typed(name: str, fields: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"type": {"const": name}} | fields,
        "required": ["type", *(key for key in fields if key != "count")],
        "additionalProperties": False,
    }
