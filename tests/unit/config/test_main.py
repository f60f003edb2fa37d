"""`python -m det_jupyter.config`: check, schema, reference."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from det_jupyter.config.__main__ import main
from det_jupyter.config.reference_page import json_schema, markdown

GOOD = """\
entrypoint: MyTrial
searcher: {name: single, metric: loss, max_length: {batches: 10}}
bind_mounts: [{host_path: /a, container_path: /b}]
"""


def test_a_good_file_is_ok_and_shown_with_origins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.yaml").write_text(GOOD)
    (tmp_path / "t.yaml").write_text("max_restarts: 1\nresources: {priority: 7}\n")
    arguments = ["check", str(tmp_path / "a.yaml"), "--template", str(tmp_path / "t.yaml")]
    assert main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "ok"
    assert [line.split() for line in lines if "template" in line] == [
        ["priority:", "7", "#", "template"],
        ["max_restarts:", "1", "#", "template"],
    ]
    assert "entrypoint: MyTrial" in lines
    assert not any("experiment_seed" in line for line in lines)
    assert lines[-1] == (
        "Note: bind_mounts: ignored: ranks run on this computer as they are, not in containers."
    )


def test_a_seed_that_was_given_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.yaml").write_text(f"{GOOD}reproducibility: {{experiment_seed: 0}}\n")
    assert main(["check", str(tmp_path / "a.yaml")]) == 0
    assert "  experiment_seed: 0\n" in capsys.readouterr().out


def test_problems_are_told_with_their_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.yaml").write_text(
        "searcher:\n  name: random\n  metirc: loss\nmax_restarts: five\n"
    )
    assert main(["check", str(tmp_path / "a.yaml")]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "line 3: searcher.metirc: unknown key; did you mean metric?",
        "line 4: max_restarts: got 'five', expected a number",
        "line 1: searcher.max_length: missing; say how long to train, such as {epochs: 6} "
        "(searcher.name: random)",
        "line 1: searcher.max_trials: missing; give the number of trials (searcher.name: random)",
        "entrypoint: missing; name a class or function of the notebook, or one of a module, such "
        "as model_def:MyTrial, or give a command",
    ]


def test_problems_of_the_template_are_told_as_such(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.yaml").write_text(GOOD)
    template = tmp_path / "t.yaml"
    template.write_text("name: x\nmax_restarts: five\n")
    arguments = ["check", str(tmp_path / "a.yaml"), "--template", str(template)]
    assert main(arguments) == 1
    template.write_text("name: x\nresources:\n  max_slots: 0\n")
    assert main(arguments) == 1
    template.write_text("hyperparameters: {lr: off}\n")
    assert main(arguments) == 1
    assert capsys.readouterr().out.splitlines() == [
        "template: line 2: max_restarts: got 'five', expected a number",
        "template: line 3: resources.max_slots: got 0, expected at least "
        "resources.slots_per_trial (1)",
        "template: line 1: hyperparameters.lr: off is false in one version of YAML and text in "
        'the next; write false, or "off" if it is text',
    ]


def test_mistakes_of_text_template_and_content_are_one_list(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.yaml").write_text(
        "template: team\nentrypoint: MyTrial\nhyperparameters:\n  lr: [0.1, 0.2\n  drop: off\n"
        "  drop: 0.5\nsearcher: {name: single, metirc: loss, max_length: 5}\nmax_restarts: five\n"
        "labels: [a]\n"
    )
    assert main(["check", str(tmp_path / "a.yaml")]) == 1
    (tmp_path / "team.yaml").write_text(
        "labels: [1]\nresources:\n  max_slots: 0\n  weight: 0\nmax_restarts: ten\nname: [x\n"
        "searcher:\n  name: {single\n"
    )
    assert main(["check", str(tmp_path / "a.yaml")]) == 1
    mine = [
        "line 4: hyperparameters.lr: this is not YAML: the [ that begins here is not closed",
        "line 5: hyperparameters.drop: off is false in one version of YAML and text in the next; "
        'write false, or "off" if it is text',
        "line 6: hyperparameters.drop: given twice, in lines 5 and 6",
        "line 7: searcher.metirc: unknown key; did you mean metric?",
        "line 8: max_restarts: got 'five', expected a number",
    ]
    assert capsys.readouterr().out.splitlines() == [
        f"line 1: template: got 'team', but there is no file {tmp_path}/team.yaml; name it with "
        "--template FILE",
        *mine,
        *mine,
        'template: line 1: labels[0]: got 1, expected text; write "1"',
        "template: line 3: resources.max_slots: got 0, expected at least "
        "resources.slots_per_trial (1)",
        "template: line 4: resources.weight: got 0, expected at least 0.001",
        "template: line 5: max_restarts: got 'ten', expected a number",
        "template: line 6: name: this is not YAML: the [ that begins here is not closed",
        "template: line 8: searcher.name: this is not YAML: the { that begins here is not closed",
    ]


def test_an_empty_file_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.yaml").write_text("# nothing yet\n")
    assert main(["check", str(tmp_path / "a.yaml")]) == 1
    assert capsys.readouterr().out == (
        "the configuration is empty; it needs at least entrypoint and searcher\n"
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{entrypoint: T, labels: [}\n", "line 1: this is not YAML: expected the node content, "),
        ("just some text\n", "got 'just some text', expected `key: value` lines"),
        ("- a\n- b\n", "got ['a', 'b'], expected `key: value` lines"),
    ],
)
def test_a_text_that_is_no_document_is_one_problem(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, problem: str
) -> None:
    (tmp_path / "a.yaml").write_text(text)
    assert main(["check", str(tmp_path / "a.yaml")]) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(problem)


def test_a_file_may_name_its_template(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.yaml").write_text(f"template: team\n{GOOD}")
    (tmp_path / "team.yml").write_text("max_restarts: 1\n")
    assert main(["check", str(tmp_path / "a.yaml")]) == 0
    assert "max_restarts: 1 " in capsys.readouterr().out
    assert main(["check", str(tmp_path / "a.yaml"), "--template", str(tmp_path / "team.yml")]) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"line 1: template: got 'team', and --template {tmp_path / 'team.yml'}; give one of them"
    ]
    (tmp_path / "a.yaml").write_text(f"template: [team]\n{GOOD}")
    (tmp_path / "team.yml").write_text("template: other\n")
    assert main(["check", str(tmp_path / "a.yaml"), "--template", str(tmp_path / "team.yml")]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "line 1: template: got ['team'], expected the name of a template",
        "template: line 1: template: a template cannot name another one; remove it",
    ]


def test_a_file_that_is_not_there_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.yaml").write_bytes(b"\xff\xfe")
    (tmp_path / "good.yaml").write_text(GOOD)
    good, missing = str(tmp_path / "good.yaml"), str(tmp_path / "b.yaml")
    assert main(["check", missing]) == 2
    assert main(["check", str(tmp_path)]) == 2
    assert main(["check", str(tmp_path / "a.yaml")]) == 2
    assert main(["check", good, "--template", missing]) == 2
    assert capsys.readouterr().err.splitlines() == [
        f"No such file or directory: {missing}",
        f"Is a directory: {tmp_path}",
        f"not UTF-8: {tmp_path / 'a.yaml'}",
        f"No such file or directory: {missing}",
    ]


def test_the_schema_and_the_reference_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    assert json.loads(capsys.readouterr().out) == json_schema()
    assert main(["reference"]) == 0
    assert capsys.readouterr().out == markdown()
