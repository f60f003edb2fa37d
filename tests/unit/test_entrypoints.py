"""What an entrypoint means."""

from __future__ import annotations

import pytest

from det_jupyter.entrypoints import Captured, Command, Imported, Program, parse_entrypoint

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
