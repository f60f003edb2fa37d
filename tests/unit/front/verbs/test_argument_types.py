"""What arguments of verbs may be, and what is said of all else."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from det_jupyter.client.imports.importing import ImportResult
from det_jupyter.contract.messages import TemplateView
from det_jupyter.contract.values.reader import SHELL
from det_jupyter.errors import ConfigError
from det_jupyter.front.notebook.handles import connection
from det_jupyter.front.notebook.handles.templates import templates
from det_jupyter.front.verbs import arguments, importing


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (arguments.port_number, "1", 1), (arguments.port_number, "65535", 65535),
        (arguments.positive, "0.5", 0.5), (arguments.positive, "1e9", 1e9),
        (arguments.gpu_or_number, "gpu", "gpu"), (arguments.gpu_or_number, "4", 4),
        (arguments.limit, "None", "none"), (arguments.limit, "0", 0),
        (arguments.at_least_one, "1", 1), (arguments.whole, "0", 0),
        (arguments.folder, " a b ", " a b "), (arguments.uuid, "abc", "abc"),
        (arguments.experiment_numbers, "5-5", [range(5, 6)]),
        (arguments.yaml_value, "{epochs: 12}", {"epochs": 12}),
    ],
)  # fmt: skip
def test_what_is_right_is_a_value(parse: Callable[[str], Any], text: str, value: Any) -> None:
    assert parse(text) == value


@pytest.mark.parametrize(
    ("parse", "texts", "expected"),
    [
        (arguments.port_number, ["0", "65536", "-1", "x"], "the number of a port, 1 to 65535"),
        (arguments.positive, ["0", "-1", "inf", "nan", "x"], "a number above 0"),
        (arguments.gpu_or_number, ["0", "-1", "GPU"], "gpu or a number of CPU places"),
        (arguments.limit, ["-1", "all"], "a whole number, or none"),
        (arguments.at_least_one, ["0", "-1", "1.5"], "a whole number, 1 or more"),
        (arguments.whole, ["-1", "x"], "a whole number, 0 or more"),
        (arguments.ranks, ["", "0,", "a"], "ranks such as 0,1"),
        (arguments.folder, ["", "  "], "the path of a folder"),
        (arguments.uuid, ["", "a/b"], "the UUID of a checkpoint"),
        (arguments.experiment_numbers, ["5-4"], "the lower number first"),
        (arguments.experiment_number, ["-1", "x"], "the number of an experiment"),
        (arguments.yaml_value, ["{a"], 'YAML in quotes, such as "{{epochs: 12}}"'),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_what_is_expected(
    parse: Callable[[str], Any], texts: list[str], expected: str
) -> None:
    for text in texts:
        with pytest.raises(ArgumentTypeError) as caught:
            parse(text)
        assert str(caught.value) == f"got {text!r}, expected {expected}".replace(
            "{{", "{"
        ).replace("}}", "}")


@pytest.mark.parametrize(
    ("changes", "first", "about"),
    [
        ({"num_new": 3}, "has 2 runs and 3 values of /logs.", "Its trials are compared by loss; "),
        ({"num_new": 0}, "has all 2 runs and 3 values of /logs already.",
         "Its trials are compared by loss; "),
        ({"num_new": 3, "metric": "", "validated": ["acc", "f1"]},
         "has 2 runs and 3 values of /logs.",
         "No metric was given to compare its trials by (acc, f1); delete it and import again "
         "with --metric NAME, and --larger-is-better if that is so; "),
        ({"num_new": 3, "metric": ""}, "has 2 runs and 3 values of /logs.",
         "No metric was given to compare its trials by; delete it"),
    ],
)  # fmt: skip
def test_what_was_imported_is_said(
    changes: dict[str, Any], first: str, about: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields: dict[str, Any] = {
        "experiment_id": 7, "source": "/logs", "num_runs": 2, "num_values": 3, "num_new": 3,
        "metric": "loss", "validated": [], "remarks": ["a file is broken"],
    }  # fmt: skip
    found = ImportResult(**{**fields, **changes})
    given: list[Any] = []

    def import_runs(client: Any, source: str, **how: Any) -> list[ImportResult]:
        given.append((source, how))
        return [found]

    monkeypatch.setattr(importing, "import_runs", import_runs)
    options = SimpleNamespace(
        source="/logs", metric="loss", larger_is_better=True, from_determined=None
    )
    call: Any = SimpleNamespace(options=options, client=None, reader=SHELL)
    lines = importing.import_(call).splitlines()
    assert lines[0] == f"Experiment 7 {first}"
    assert lines[1].startswith(about)
    assert lines[1].endswith("experiment show 7` shows it.")
    assert lines[2] == "Not read: a file is broken"
    assert given == [("/logs", {"metric": "loss", "larger_is_better": True})]


def test_templates_are_set_from_dicts_texts_and_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored: dict[str, Any] = {}

    def view(name: str) -> TemplateView:
        return TemplateView(name=name, config=stored[name], created_at=0.0, updated_at=0.0)

    client = SimpleNamespace(
        set_template=stored.__setitem__,
        template=view,
        templates=lambda: [view(name) for name in sorted(stored)],
        delete_template=stored.pop,
    )
    monkeypatch.setattr(connection, "client", lambda: client)
    assert repr(templates) == "Templates: none yet"
    (tmp_path / "t.yaml").write_text("max_restarts: 3\n")
    templates.set("b", {"searcher.max_length.epochs": 2})
    templates.set("a", "max_restarts: 1")
    templates.set("c", tmp_path / "t.yaml")
    assert templates.get("b") == {"searcher": {"max_length": {"epochs": 2}}}
    assert [each.config for each in templates.list()][::2] == [
        {"max_restarts": 1}, {"max_restarts": 3},
    ]  # fmt: skip
    templates.delete("b")
    assert repr(templates) == "Templates: a, c"
    with pytest.raises(ConfigError):
        templates.set("d", "a: [1")
    assert "d" not in stored
