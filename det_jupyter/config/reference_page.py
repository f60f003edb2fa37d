"""Generates the reference of all keys: Markdown for users, JSON Schema for editors."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Iterator
from typing import Any

from det_jupyter.config.experiment_config import ExperimentConfig
from det_jupyter.config.keys import NO_EFFECT, NO_MEANING, TAGS
from det_jupyter.config.reference import ANYTHING, FieldHelp, describe, describe_field, known_keys
from det_jupyter.config.sections import DEVICE_KINDS
from det_jupyter.config.tree import kinds
from det_jupyter.searcher.methods import SECTIONS

_INTRODUCTION = """\
# Configuration

An experiment is described in YAML. Two keys are required, everything else has a default:

```yaml
entrypoint: DigitsTrial
searcher: {name: single, metric: loss, max_length: {epochs: 6}}
```

`python -m det_jupyter.config check FILE.yaml` prints the effective configuration, with who gave
each value, or all problems with their lines. Editors can use
[configuration.schema.json](configuration.schema.json).

A null counts as not given, except for a hyperparameter. Names and most defaults are those of
Determined AI ([the others](#other-defaults)).
"""
_ENTRYPOINTS = """\
## entrypoint

| written | what it is | runs once per |
|---|---|---|
| `DigitsTrial`, `train` | class or function of the notebook | slot |
| `model_def:Trial`, `pkg.models:Outer.Trial` | class or function of a module | slot |
| `python3 -m det_jupyter.launch.torch_distributed train.py` | script under a launcher | slot |
| `python3 train.py --epochs 3`, `python3 -m pkg.train` | script or module | computer |
| `./train.sh \\| tee log`, `mpirun -np 2 ./fit` | another command, run by `sh -c` | computer |
| `[python3, train.py, --lr, "0.1"]` | a command as a list: no shell reads it | as the same text |

The module is in the context directory, or installed. [Launchers](launchers.md) has the others.
"""
_OLDER = """\
## Older files

| of Determined | here |
|---|---|
| `max_steps`, `target_trial_steps`, `batches_per_step` | steps become batches, of \
`batches_per_step` or 100 each |
| searcher `adaptive_simple` | `adaptive_asha` |
| searchers `adaptive`, `sync_halving`, `pbt`, `custom` | refused, with what to write instead |
| storage `hdfs` | give a folder: `--checkpoint-storage FOLDER`, or for all \
experiments `DET_JUPYTER_CHECKPOINT_STORAGE=FOLDER` where the master starts |
"""
_LENGTHS = """\
## Lengths

`{batches: 500}`, `{records: 50000}` or `{epochs: 6}`; a bare number counts batches. Records need
`hyperparameters.global_batch_size`, and so do epochs if `records_per_epoch` is given; without it
an epoch is one pass over the training data.
"""
_HYPERPARAMETERS = """\
## hyperparameters

| form | what a trial gets |
|---|---|
| `lr: 0.05`, or any value without `type` | that value |
| `lr: {type: const, val: 0.05}` | the value, which may be a list or mapping |
| `depth: {type: int, minval: 2, maxval: 8}` | a whole number, both ends included |
| `drop: {type: double, minval: 0, maxval: 0.5}` | a number |
| `lr: {type: log, base: 10, minval: -4, maxval: -1}` | a number from 10^-4 to 10^-1 |
| `act: {type: categorical, vals: [relu, gelu]}` | one of the values |
| `optimizer: {lr: ..., momentum: ...}` | hyperparameters nested to any depth |

`count` says into how many values searcher `grid` divides an int, double or log. The same seed
draws the same samples on every computer.
"""
_YAML = """\
## YAML

| written | read as |
|---|---|
| `smaller_is_better: no`, `description: no` | false, text: the key decides |
| `yes`, `no`, `on`, `off`, `010` in `hyperparameters` | refused, as no key decides |
| `1e-3` | a number |
| `1:30`, `2024-01-31` | text |
"""
_SEARCHERS = """\
`max_length` is not required for ASHA with a `time_metric`, and for commands with searcher single,
random or grid, which decide themselves how long they train. ASHA measures training by
`max_length`, or by a metric that validations report: `time_metric` up to `max_time`. With
`max_length`, a trial that reaches a rung rests, without slots, until it is among the best there;
with `stop_once` or `time_metric` it goes on at once or is stopped for good.
"""
OTHER_DEFAULTS = {
    "name": ("three random words", "the entrypoint"),
    "min_validation_period": (
        "`{batches: 0}`",
        "an epoch if max_length is in epochs; the lowest rung with a time_metric",
    ),
    "checkpoint_storage": ("what the master is set up with", "det_jupyter's own data folder"),
    "profiling.enabled": ("`false`", "none: timings in short, and system metrics"),
    "optimizations.tensor_fusion_threshold": ("64 MB, Horovod's", "25 MB, torch's"),
    "log_policies": ("two for CUDA's and ECC errors, without an action", "none"),
}
_WRITTEN = {"entrypoint": _ENTRYPOINTS, "hyperparameters": _HYPERPARAMETERS}
_NONE = FieldHelp("", "", None, "")
_BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum"}
_SCALAR: dict[str, Any] = {"type": ["string", "number", "boolean", "null", "array"]}
_VARIABLES: dict[str, Any] = {
    "type": "array",
    "items": {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*(=|$)"},
}


def markdown() -> str:
    """Return the reference in Markdown: docs/configuration.md."""
    parts = [_INTRODUCTION, "## The whole\n", _table(_with_meaning(""))]
    for section in known_keys(""):
        if section in TAGS:
            parts += _kinds(section)
        elif section in _WRITTEN:
            parts.append(_WRITTEN[section])
        elif rows := _with_meaning(section):
            parts += [f"## {section}\n", _table(rows)]
    return "\n".join([*parts, _LENGTHS, _OLDER, _YAML, _other_defaults(), _without_meaning()])


def _other_defaults() -> str:
    rows = [f"| `{path}` | {' | '.join(cells)} |" for path, cells in OTHER_DEFAULTS.items()]
    head = ["## Other defaults", "", "| key | Determined | here |", "|---|---|---|"]
    return "\n".join([*head, *rows]) + "\n"


def _without_meaning() -> str:
    keys = ", ".join(f"`{path}`" for path in NO_MEANING)
    about = "Accepted, with a notice that says what becomes of each:"
    return f"## Without meaning here\n\n{about} {keys}.\n"


def _with_meaning(section: str, kind: str = "") -> list[FieldHelp]:
    """Return the keys of a section, or of one kind of it, that have an effect here."""
    if section in NO_EFFECT or (describe(section) or _NONE).type == "length":
        return []
    document = {section: {TAGS[section]: kind}} if kind else None
    rows = known_keys(section, document).values()
    return [row for row in rows if row.path not in NO_MEANING and row.type != ANYTHING]


def _kinds(section: str) -> Iterator[str]:
    """Yield the kinds of a section, then its keys, each with the kinds that have it."""
    tag, by_kind = TAGS[section], {name: _with_meaning(section, name) for name in kinds(section)}
    yield f"## {section}\n\n| `{tag}` | |\n|---|---|"
    for name, kind in kinds(section).items():
        yield f"| `{name}` | {inspect.cleandoc(kind.__doc__ or '')} |"
    common = set.intersection(*({row.path for row in rows} for rows in by_kind.values()))
    shared = [row for row in known_keys(section).values() if row.path in common]
    of: dict[tuple[str, ...], list[str]] = {}
    for name, rows in by_kind.items():
        for row in rows:
            if row.path not in common:
                of.setdefault(_cells(row), []).append(f"`{name}`")
    special = [
        (*cells, f"Only {', '.join(names)}: {text}") for (*cells, text), names in of.items()
    ]
    yield ""
    yield _lines([*(_cells(row) for row in shared if row.path != f"{section}.{tag}"), *special])
    if section == "searcher":
        yield _SEARCHERS


def _table(rows: list[FieldHelp]) -> str:
    return _lines(map(_cells, rows))


def _lines(rows: Iterable[tuple[str, ...]]) -> str:
    lines = ["| key | type | default | meaning |", "|---|---|---|---|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n"


def _cells(row: FieldHelp) -> tuple[str, ...]:
    default = "*required*" if row.is_required else _default(row)
    remark = f" *{row.note[0].upper()}{row.note[1:]}.*" if row.note else ""
    return f"`{row.path.rpartition('.')[2]}`", row.type, default, f"{row.text}{remark}"


def _default(row: FieldHelp) -> str:
    if row.default is None:
        return ""
    is_words = isinstance(row.default, str) and " " in row.default
    return row.default if is_words else f"`{_as_yaml(row.default)}`"


def _as_yaml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {item}" for key, item in value.items()) + "}"
    return value if isinstance(value, str) and value else json.dumps(value)


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of what users write: keys with computed defaults are optional."""
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
    """Rename bounds (`ge`, ...) to those of JSON Schema, where pydantic has left its own names."""
    if isinstance(schema, dict):
        for ours, theirs in _BOUNDS.items():
            if isinstance(schema.get(ours), (int, float)):
                schema[theirs] = schema.pop(ours)
    for item in schema.values() if isinstance(schema, dict) else schema:
        if isinstance(item, (dict, list)):
            _name_bounds(item)


def _allow_short_forms(sections: dict[str, Any]) -> None:
    """Add the forms that validators accept besides those that they return."""
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
