"""A configuration as YAML: readable, faithful, with origins."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from det_jupyter.config import origins, parse_config, parse_yaml, to_yaml


def test_the_whole_is_readable_and_tells_who_gave_what() -> None:
    template = {"labels": ["team"], "resources": {"priority": 50}}
    user = parse_yaml("""
entrypoint: MyTrial
labels: [mine]
hyperparameters:
  lr: {type: log, base: 10, minval: -4, maxval: -1}
  layers: [64, 32]
  clip: null
searcher: {name: single, metric: loss, max_length: {epochs: 6}}
bind_mounts: [{host_path: /a, container_path: /b}]
""")
    effective = parse_config(user, default_seed=7, template=template).to_document()
    shown = to_yaml(effective, origins(user, template, effective))
    assert shown.startswith("""\
name: MyTrial                         # default
description: ""                       # default
labels:
- team                                # template
- mine
entrypoint: MyTrial
hyperparameters:
  lr: {type: log, base: 10, minval: -4, maxval: -1}
  layers: [64, 32]
  clip: null
searcher:
  name: single
  metric: loss
  smaller_is_better: true             # default
  elastic: false                      # default
  max_length: {epochs: 6}
resources:
  slots_per_trial: 1                  # default
  resource_pool: ""                   # default
  is_single_node: false               # default
  priority: 50                        # template
  weight: 1                           # default
reproducibility:
  experiment_seed: 7                  # default
data: {}                              # default
""")
    assert shown.endswith("""\
bind_mounts:
- {host_path: /a, container_path: /b}
""")
    assert parse_config(parse_yaml(shown)) == parse_config(effective)


def test_secrets_are_masked() -> None:
    document = {
        "data": {"secrets": {"token": "abc"}, "bucket": "b"},
        "environment": {"registry_auth": {"username": "me", "password": "abc"}},
    }
    assert to_yaml(document) == (
        'data:\n  bucket: b\n  secrets: {token: "********"}\n'
        'environment:\n  registry_auth: {username: me, password: "********"}\n'
    ).replace('  bucket: b\n  secrets: {token: "********"}\n',
              '  secrets: {token: "********"}\n  bucket: b\n')  # fmt: skip


@pytest.mark.parametrize(
    "value",
    ["on", "No", "010", "1e3", "1:30", "2024-01-31", "null", "~", "", " a", "a ", "a: b", "a #b",
     "- a", "{a", "it's", 'say "a"', "a\nb", "\x07", "é", "😀", "None", "nan", ".inf", "0x1F",
     "<<", "*a", "&a", "!a", "%a", "@a", "`a", "C:\\x", "\u2028", "A=1", "/a/b c", "O0", "\ufeff"],
)  # fmt: skip
def test_text_stays_text_in_every_version_of_yaml(value: str) -> None:
    written = to_yaml({"data": {"x": value, "y": [value], value or "k": 1}})
    expected = {"data": {"x": value, "y": [value], value or "k": 1}}
    assert parse_yaml(written) == expected
    assert yaml.safe_load(written) == expected


@pytest.mark.parametrize("value", [1e-5, 1e22, 0.1, -2.0, 5, 10**18, 1e16, 1.5e-300])
def test_numbers_stay_numbers_of_their_kind(value: float) -> None:
    written = to_yaml({"data": {"x": value}})
    for found in (parse_yaml(written), yaml.safe_load(written)):
        assert repr(found["data"]["x"]) == repr(value)


keys = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=8)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=60)
@given(st.dictionaries(keys, values, max_size=4))
def test_whatever_is_written_is_read_again(data: dict[str, Any]) -> None:
    document = {"data": data, "hyperparameters": {"x": data}}
    data.pop("secrets", None)
    assert parse_yaml(to_yaml(document)) == document
    assert parse_yaml(to_yaml(document, {})) == document
