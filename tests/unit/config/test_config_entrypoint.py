"""`entrypoint`: what it may be, what is said when it is wrong, and the name that it gives."""

from __future__ import annotations

from typing import Any

import pytest

from det_jupyter.config import check_sanity, merge, notices, origins, parse_config, parse_yaml
from det_jupyter.contract.values.entrypoints import entrypoint_text
from det_jupyter.errors import ConfigError
from tests.problems import said

SEARCHER = {"name": "single", "metric": "loss", "max_length": {"batches": 10}}
OF_ANY_KIND = (
    "expected a class or function of the notebook, such as MyTrial, one of a module, such as "
    "model_def:MyTrial, or a command as text or as a list of texts"
)


def with_entrypoint(entrypoint: Any, **others: Any) -> dict[str, Any]:
    return {"entrypoint": entrypoint, "searcher": SEARCHER} | others


@pytest.mark.parametrize(
    ("entrypoint", "name"),
    [
        ("MyTrial", "MyTrial"),
        ("model_def:Trial", "Trial"),
        ("pkg.models:Outer.Trial", "Trial"),
        ("python3 train.py --epochs 3", "train"),
        ("python3 -m pkg.train --x", "train"),
        ("python3 -m pkg.__main__", "pkg"),
        ("python3 -m determined.launch.torch_distributed -- src/fit.py", "fit"),
        ("python3 -m determined.launch.torch_distributed --nproc 2 fit.py", "fit"),
        ("python3 -m determined.launch.horovod --autohorovod --trial m:T", "T"),
        ("FOO=1 ./go.sh | tee log", "go"),
        (["python3", "my train.py"], "my train"),
        (["mpirun", "-np", "2", "./fit"], "mpirun"),
        ("/opt/bin/fit --deep", "fit"),
        ("$SHELL", "$SHELL"),
        (["A=1"], "experiment"),
        (["a" * 300], "a" * 200),
    ],
)
def test_the_entrypoint_names_the_experiment(entrypoint: str | list[str], name: str) -> None:
    config = parse_config(with_entrypoint(entrypoint), default_seed=1)
    assert (config.entrypoint, config.name) == (entrypoint, name)
    assert parse_config(config.to_document()) == config


@pytest.mark.parametrize(
    ("entrypoint", "problems"),
    [
        (5, [f"entrypoint: got 5, {OF_ANY_KIND}"]),
        ({"model_def": "Trial"},
         [f"entrypoint: got {{'model_def': 'Trial'}}, {OF_ANY_KIND}; write model_def:Trial"]),
        ("", ["entrypoint: got '', expected a class or function, or a command"]),
        ([], ["entrypoint: got [], expected a command: the name of a program, and what it is "
              "given"]),
        ([" "], ["entrypoint: got [' '], expected a command: the name of a program, and what it "
                 "is given"]),
        (["train", 3, True, "a\0"],
         ['entrypoint[1]: got 3, expected text; write "3"', "entrypoint[2]: got true, expected "
          "text", "entrypoint[3]: got 'a\\x00', expected text without the character #x0000"]),
        ("src/model.py:Trial",
         ["entrypoint: got 'src/model.py:Trial', expected the name of a module, a colon and a "
          "name in it; write src.model:Trial"]),
        ("model_def: Trial",
         ["entrypoint: got 'model_def: Trial', expected the name of a module, a colon and a name "
          "in it; write model_def:Trial"]),
        (":Trial",
         ["entrypoint: got ':Trial', expected the name of a module, a colon and a name in it, "
          "such as model_def:MyTrial"]),
        ("train 'a", ["entrypoint: got \"train 'a\", expected a command that can be read (no "
                      "closing quotation)"]),
        (None, ["entrypoint: missing; name a class or function of the notebook, or one of a "
                "module, such as model_def:MyTrial, or give a command"]),
    ],
)  # fmt: skip
def test_what_is_no_entrypoint_is_told_with_what_to_write(
    entrypoint: Any, problems: list[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(with_entrypoint(entrypoint), default_seed=1)
    assert said(caught.value.problems) == problems


def test_a_template_completes_a_null_and_may_have_one() -> None:
    assert check_sanity({"entrypoint": None}) == []
    config = parse_config(
        with_entrypoint(None), default_seed=1, template={"entrypoint": "model_def:Trial"}
    )
    assert config.entrypoint == "model_def:Trial"


def test_a_command_has_the_place_of_the_template_s() -> None:
    template = {"entrypoint": ["python3", "a.py"]}
    user = with_entrypoint(["python3", "b.py", "--fast"])
    assert merge(template, user)["entrypoint"] == ["python3", "b.py", "--fast"]
    effective = parse_config(user, default_seed=1, template=template).to_document()
    found = origins(user, template, effective)
    assert {found[f"entrypoint[{index}]"] for index in range(3)} == {"you"}


def test_words_of_yaml_are_texts_in_a_command() -> None:
    document = parse_yaml("entrypoint: [train, --log, yes, 010, null-ish]")
    assert document["entrypoint"] == ["train", "--log", "yes", "010", "null-ish"]


def test_a_script_without_its_interpreter_gets_a_notice() -> None:
    assert notices(with_entrypoint("train.py")) == [
        "entrypoint: train.py is run as a program, which is looked for on PATH; for the script "
        "write python3 train.py."
    ]
    assert notices(with_entrypoint("./train.py")) == []


def test_a_command_needs_no_length_and_a_class_does() -> None:
    searcher = {"name": "random", "metric": "loss", "max_trials": 2}
    config = parse_config({"entrypoint": "./fit", "searcher": searcher}, default_seed=1)
    assert str(config.searcher.max_length) == "1 batches"
    assert notices({"entrypoint": "./fit", "searcher": searcher | {"max_trials": 1}}) == [
        "searcher.max_length: not given: the command decides itself how long it trains; one "
        "that reads searcher.operations gets 1 batch, and needs max_length."
    ]
    for entrypoint in ("Trial", "model_def:Trial"):
        with pytest.raises(ConfigError, match=r"searcher\.max_length: missing"):
            parse_config({"entrypoint": entrypoint, "searcher": searcher}, default_seed=1)


def test_a_list_is_shown_as_a_command_line() -> None:
    assert entrypoint_text(["python3", "train.py", "my run"]) == "python3 train.py 'my run'"
    assert entrypoint_text(" model_def:Trial\n") == "model_def:Trial"
