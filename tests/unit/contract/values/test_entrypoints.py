"""What an entrypoint means."""

from __future__ import annotations

import re

import pytest

from det_jupyter.contract.values.entrypoints import (
    Captured,
    Command,
    Imported,
    Program,
    entrypoint_name,
    entrypoint_text,
    is_python,
    parse_entrypoint,
)

LAUNCH = "python3 -m det_jupyter.launch.torch_distributed"


@pytest.mark.parametrize(
    ("value", "meaning"),
    [
        ("DigitsTrial", Captured("DigitsTrial")),
        ("model_def:Trial", Imported("model_def", "Trial")),
        ("pkg.model_def:Outer.Trial", Imported("pkg.model_def", "Outer.Trial")),
        ("python3 train.py", Program("train.py", False, ())),
        ("python -u sub/train.py --x 'a b'", Program("sub/train.py", False, ("--x", "a b"))),
        ("/opt/bin/python3.11 -m pkg.train 1", Program("pkg.train", True, ("1",))),
        (["python3", "train.py", "$x"], Program("train.py", False, ("$x",))),
        (f"{LAUNCH} train.py -n 1", Program("train.py", False, ("-n", "1"), "torch_distributed")),
        (f"{LAUNCH} -- -m pkg.train", Program("pkg.train", True, (), "torch_distributed")),
        (f"{LAUNCH} python3 train.py", Program("train.py", False, (), "torch_distributed")),
        (f"{LAUNCH} --trial model_def:T", Imported("model_def", "T")),
        (
            "python3 -m determined.launch.deepspeed --trial m:T",
            Imported("m", "T", launcher="deepspeed"),
        ),
        # only the launcher itself knows its options
        (
            f"{LAUNCH} --nnodes 1 -- train.py",
            Program(
                "det_jupyter.launch.torch_distributed", True, ("--nnodes", "1", "--", "train.py")
            ),
        ),
        (
            "python3 -m det_jupyter.launch.horovod train.py",
            Program("det_jupyter.launch.horovod", True, ("train.py",)),
        ),
        # what a shell has to read, other options of Python, other programs
        ("python3 train.py $ARGS", Command(("sh", "-c", "python3 train.py $ARGS"))),
        ("X=1 python3 train.py", Command(("sh", "-c", "X=1 python3 train.py"))),
        ("python3 -O train.py", Command(("sh", "-c", "python3 -O train.py"))),
        ("python3 -c pass", Command(("sh", "-c", "python3 -c pass"))),
        ("./train.sh", Command(("sh", "-c", "./train.sh"))),
        (["mpirun", "-np", "2", "a b"], Command(("mpirun", "-np", "2", "a b"))),
        ([], Command(())),
        (["python3"], Command(("python3",))),
        (["python3", "-m"], Command(("python3", "-m"))),
        ("python3 -u -u train.py", Program("train.py", False, ())),
        ("  model_def:Trial  ", Imported("model_def", "Trial")),
        (LAUNCH, Program("det_jupyter.launch.torch_distributed", True, ())),
        (
            f"{LAUNCH} --trial m:T 1",
            Program("det_jupyter.launch.torch_distributed", True, ("--trial", "m:T", "1")),
        ),
        (
            "python3 -m determined.launch.deepspeed train.py",
            Program("train.py", False, (), "deepspeed"),
        ),
        (f"{LAUNCH} -- python3 -m pkg", Program("pkg", True, (), "torch_distributed")),
    ],
)
def test_an_entrypoint_means_code_or_a_command(value: str | list[str], meaning: object) -> None:
    assert parse_entrypoint(value) == meaning


@pytest.mark.parametrize("value", ["", "  ", "python3 'train.py"])
def test_what_means_nothing_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match="expected a "):
        parse_entrypoint(value)


@pytest.mark.parametrize(
    ("value", "per"),
    [
        ("DigitsTrial", "slot"),
        ("model_def:Trial", "slot"),
        (f"{LAUNCH} train.py", "slot"),
        ("python3 train.py", "computer"),
        ("./train.sh", "computer"),
    ],
)
def test_processes_are_started_for_slots_or_for_computers(value: str, per: str) -> None:
    assert parse_entrypoint(value).per == per


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("train.py:main", "a colon and a name in it; write train:main"),
        ("./pkg/train.py:Outer.Trial", "write pkg.train:Outer.Trial"),
        ("model_def : Trial", "write model_def:Trial"),
        ("my-model:Trial", "a name in it, such as model_def:MyTrial"),
        ("model_def:", "such as model_def:MyTrial"),
        ("train\0.py", "without the character #x0000"),
        ("", "expected a class or function, or a command"),
        ("python3 'train.py", "expected a command that can be read (no closing quotation)"),
        ("DigitsTrial()", "expected a class or function, not a call of it; write DigitsTrial"),
        (
            "model_def:main(lr=3)",
            "expected a class or function, not a call of it; write model_def:main",
        ),
        ("src.model.Trial(3)", "not a call of it; write src.model:Trial"),
        ("./model_def.py:Trial((1, 2))", "not a call of it; write model_def:Trial"),
    ],
)
def test_a_slip_is_answered_with_what_was_meant(value: str, problem: str) -> None:
    with pytest.raises(ValueError, match=f"{re.escape(problem)}$"):
        parse_entrypoint(value)


@pytest.mark.parametrize(
    "line", ["run() { python3 train.py; }; run $(nproc)", "train | tee $(date)", "train.py ()"]
)
def test_a_line_of_a_shell_is_no_call(line: str) -> None:
    assert parse_entrypoint(line) == Command(("sh", "-c", line))


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("DigitsTrial", "DigitsTrial"),
        ("model_def:Outer.Trial", "Trial"),
        ("python3 src/train.py", "train"),
        ("python3 -m pkg.fit other.py", "fit"),
        ("python3 -m pkg.fit.__main__", "fit"),
        (f"{LAUNCH} src/train.py --epochs 3", "train"),
        (f"{LAUNCH} --nnodes 1 -- --trial model_def:Outer.Trial", "Trial"),
        ("python3 -m det_jupyter.launch.horovod fit.sh", "fit"),
        ("python3 -m torch.distributed.run --endpoint host:port train.py", "train"),
        ("mpirun --trial 3 ./fit.sh", "fit"),
        (["mpirun", "-np", "2", "./fit"], "mpirun"),
        ("X=a.py Y=2 bin/fit/ a b", "fit"),
        ("./run 'a", "run"),
        ("", ""),
        ([], ""),
    ],
)
def test_an_entrypoint_has_a_name(value: str | list[str], name: str) -> None:
    assert entrypoint_name(value) == name


def test_an_entrypoint_is_shown_as_a_command_line() -> None:
    assert entrypoint_text(["python3", "train.py", "my run"]) == "python3 train.py 'my run'"
    assert entrypoint_text("  ./train.sh | tee log\n") == "./train.sh | tee log"


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("python", True),
        ("python3", True),
        ("/opt/bin/python3.12", True),
        ("python2", False),
        ("python3.x", False),
        ("ipython3", False),
        ("python3 ", False),
    ],
)
def test_interpreters_are_known_by_their_names(word: str, expected: bool) -> None:
    assert is_python(word) == expected
