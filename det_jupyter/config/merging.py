"""Merges a configuration over a template, and finds the origin of each value of the result.

    scalar                          the configuration's if there is one (null counts as absent)
    section, `data`                 key by key, at any depth
    list                            the template's entries, then the configuration's
    entrypoint                      the configuration's if there is one, as text or as a list
    labels                          a set
    alerts                          entries of one name are one; an address replaces the other's
    trackers                        the configuration's entry replaces one of the same name
    bind_mounts, devices, ports     the template's entries except those that the configuration
                                    has too (by container_path, ...), then the configuration's
    length, hyperparameter          all of it from one side; nested hyperparameters key by key,
                                    where null is a value
    searcher, checkpoint_storage    key by key if both are of one kind, or the configuration names
                                    none; else only the keys that all kinds have

The rule for lists is that of Determined's documentation; its code replaces them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from det_jupyter.config.json_values import MAX_VALUES, Unread
from det_jupyter.config.keys import TAGS, is_free
from det_jupyter.config.migrate import migrate
from det_jupyter.config.sections import DEVICE_KINDS
from det_jupyter.contract.schema.hyperparameters import is_nested
from det_jupyter.contract.schema.key_paths import format_value, join
from det_jupyter.contract.values.lengths import UNITS
from det_jupyter.errors import Problem
from det_jupyter.searcher.searcher_section import SearcherSection

Origin = Literal["you", "template", "default"]
_COMMON = {
    "searcher": SearcherSection.model_fields.keys() - {"name"},
    "checkpoint_storage": {"save_experiment_best", "save_trial_best", "save_trial_latest"},
}
_KEYED_BY: dict[str, tuple[str, ...]] = {
    "bind_mounts": ("container_path",),
    "resources.devices": ("container_path",),
    "environment.proxy_ports": ("proxy_port",),
    "log_policies": ("name",),
    "alerts": ("name",),
    "trackers": ("name",),
}
_VARIABLES = "environment.environment_variables"


def merge(template: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration merged over the template; neither is modified.

    >>> merge({"labels": ["a"], "max_restarts": 1}, {"labels": ["b", "a"], "max_restarts": None})
    {'labels': ['a', 'b'], 'max_restarts': 1}
    """
    return _merge_sections(template, config, "")


def take_template(
    document: dict[str, Any], given: str | None = None
) -> tuple[str | None, list[Problem]]:
    """Remove the key `template` from a document; return the template's name, and problems.

    Args:
        document: What a user wrote. It is modified.
        given: The name from another source, such as --template.
    """
    named = document.pop("template", None)
    if named is None or isinstance(named, Unread):
        return given, []
    if not isinstance(named, str):
        return given, [
            Problem("template", f"got {format_value(named)}, expected the name of a template")
        ]
    if given is not None:
        return given, [
            Problem("template", f"got {named!r}, and --template {given}; give one of them")
        ]
    return named, []


def _merge_sections(
    template: Mapping[str, Any], config: Mapping[str, Any], path: str
) -> dict[str, Any]:
    merged = dict(template)
    for key, value in config.items():
        merged[key] = _merge_values(template.get(key), value, f"{path}{key}")
    return merged


def _merge_values(template: Any, config: Any, path: str) -> Any:
    if config is None or template is None:
        return template if config is None else config
    if isinstance(config, Mapping) and isinstance(template, Mapping):
        if _is_length(template, path) or _is_length(config, path):
            return config
        if path == "hyperparameters":
            return _merge_hparams(template, config)
        return _merge_sections(_fitting(template, config, path), config, f"{path}.")
    if path == _VARIABLES and _is_list(config) != _is_list(template):
        return _merge_sections(_by_kind(template), _by_kind(config), f"{path}.")
    if _is_list(config) and _is_list(template) and path != "entrypoint":
        return _merge_lists(template, config, path)
    return config


def _merge_hparams(template: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(template)
    for name, value in config.items():
        nested = is_nested(value) and is_nested(template.get(name))
        merged[name] = _merge_hparams(template[name], value) if nested else value
    return merged


def _fitting(
    template: Mapping[str, Any], config: Mapping[str, Any], path: str
) -> Mapping[str, Any]:
    """Return the part of a template's section that the configuration's kind of section has."""
    if path not in TAGS:
        return template
    tag = TAGS[path]
    theirs = template.get(tag, "shared_fs" if tag == "type" else None)
    if config.get(tag) is None or theirs is None or config[tag] == theirs:
        return template
    return {key: value for key, value in template.items() if key in _COMMON[path]}


def _merge_lists(template: Sequence[Any], config: Sequence[Any], path: str) -> list[Any]:
    if path == "labels":
        return list({_as_text(label): label for label in [*template, *config]}.values())
    if path not in _KEYED_BY:
        return [*template, *config]
    taken = {_identity(item, path) for item in config} - {None}
    if path == "alerts":  # an entry may have only what differs
        before = {_identity(item, path): item for item in template}
        config = [_with_address(before.get(_identity(item, path)), item) for item in config]
    return [*(item for item in template if _identity(item, path) not in taken), *config]


def _with_address(before: Any, item: Any) -> Any:
    """Return an alert merged over the one of the same name; an address replaces the other."""
    if not isinstance(before, Mapping) or not isinstance(item, Mapping):
        return item
    kept = before if item.keys() <= {"name", "on"} else {"on": before.get("on")}
    return {key: value for key, value in {**kept, **item}.items() if value is not None}


def _identity(item: Any, path: str) -> str | None:
    """Return the key by which entries of a list replace each other; None: it has none."""
    if isinstance(item, str):  # a device in its short form
        parts = item.split(":")
        return _as_text([parts[1]]) if len(parts) > 1 else None
    if not isinstance(item, Mapping):
        return None
    given = [item.get(key) for key in _KEYED_BY[path]]
    if path == "log_policies" and given == [None]:
        return _as_text([item.get("pattern"), item.get("action")])
    return None if None in given else _as_text(given)


def _is_length(value: Mapping[str, Any], path: str) -> bool:
    """Return whether a mapping is a length such as {epochs: 6}, which is one value."""
    return bool(value) and value.keys() <= set(UNITS) and not is_free(path)


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple))


def _as_text(value: Any) -> str:
    return format_value(value, longest=MAX_VALUES)


def merge_variables(template: Any, config: Any) -> Any:
    """Return the configuration's environment variables merged over the template's.

    Args:
        template: A list of NAME=value, or lists by kind of device ("cpu", "cuda").
        config: The same.
    """
    return _merge_values(template, config, _VARIABLES)


def _by_kind(variables: Any) -> Mapping[str, Any]:
    """Return environment variables by kind of device; a list is for all kinds."""
    if isinstance(variables, Mapping):
        return variables
    return {kind: variables if _is_list(variables) else [variables] for kind in DEVICE_KINDS}


def origins(
    user: Mapping[str, Any], template: Mapping[str, Any], effective: Mapping[str, Any]
) -> dict[str, Origin]:
    """Return the origin of each value of a configuration, by path.

    Args:
        user: What the user wrote.
        template: The template that it was merged over; empty if there is none.
        effective: The document that `parse_config` made of both.
    """
    user, template, _ = migrate(user, template)
    return dict(_trace(effective, _Sides(user, template, merge(template, user)), ""))


class _Sides(NamedTuple):
    """The values of the user, the template and their merge at one path; None: absent."""

    user: Any
    template: Any
    merged: Any


class _Everything(dict[str, Any]):
    """A mapping that contains every key: stands for a value all of which one side gave."""

    def __contains__(self, key: object) -> bool:
        return True

    def __getitem__(self, key: str) -> _Everything:
        return self


_EVERYTHING = _Everything()


def _from_one(given: Any, *, is_mine: bool) -> _Sides:
    return _Sides(given, None, given) if is_mine else _Sides(None, given, given)


def _trace(effective: Any, sides: _Sides, path: str) -> Iterator[tuple[str, Origin]]:
    """Yield the origin of everything at and below a path."""
    if isinstance(effective, Mapping) and effective:
        yield from _trace_section(effective, sides, path)
    elif isinstance(effective, list) and effective:
        yield from _trace_list(effective, sides, path)
    elif sides.user is not None:
        yield path, "you"
    else:
        yield path, "default" if sides.template is None else "template"


def _trace_section(
    effective: Mapping[str, Any], sides: _Sides, path: str
) -> Iterator[tuple[str, Origin]]:
    user, template, _ = sides
    is_whole = _is_length(effective, path) or (
        path.startswith("hyperparameters.") and effective.get("type") is not None
    )
    if user is not None and (is_whole or not isinstance(user, Mapping)):
        sides = _from_one(_EVERYTHING, is_mine=True)
    elif template is not None and (is_whole or not isinstance(template, Mapping)):
        sides = _from_one(_EVERYTHING, is_mine=False)
    elif isinstance(user, Mapping) and isinstance(template, Mapping):
        sides = sides._replace(template=_fitting(template, user, path))
    for key, value in effective.items():
        below = _Sides(*(_child(side, key, value) for side in sides))
        yield from _trace(value, below, join(path, key))


def _child(source: Any, key: str, effective: Any) -> Any:
    if not isinstance(source, Mapping) or key not in source:
        return None
    value = source[key]
    is_null = value is None and effective is None  # a null that is a value
    return _EVERYTHING if is_null else value


def _trace_list(effective: list[Any], sides: _Sides, path: str) -> Iterator[tuple[str, Origin]]:
    """Yield the origins of a list: the last entries are the user's, the others the template's."""
    user, template, merged = sides
    is_aligned = _is_list(merged) and len(merged) == len(effective)
    mine = user if _is_list(user) else []
    for index, item in enumerate(effective):
        here = join(path, index)
        if user is None and template is None:
            yield here, "default"
            continue
        if not is_aligned:
            is_mine, given = user is not None, _EVERYTHING
        elif path == "labels":
            is_mine, given = item in mine, item
        else:
            is_mine, given = index >= len(effective) - len(mine), merged[index]
        yield from _trace(item, _from_one(given, is_mine=is_mine), here)
