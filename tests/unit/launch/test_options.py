"""The command lines of launchers."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from det_jupyter.contract.host.rundir import RUN_VARIABLE, RunDir
from det_jupyter.launch.chief_launcher import RanksToStart
from det_jupyter.launch.computers import Computers, RunLayout, computers_of, count_gpus
from det_jupyter.launch.deepspeed import deepspeed_command
from det_jupyter.launch.horovod import horovodrun_command
from det_jupyter.launch.mpi import mpirun_command
from det_jupyter.launch.options import (
    CommandLine,
    WrongUsage,
    find_program,
    parse_command_line,
    rank_command,
)
from det_jupyter.launch.torch_distributed import find_computers

ARITY = {"nproc_per_node": 1, "np": 1, "standalone": 0}
WRAP = (sys.executable, "-m", "det_jupyter.launch.wrap_rank", "--with-parent")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("train.py --epochs 3", CommandLine({}, (), ("train.py", "--epochs", "3"))),
        ("-- train.py", CommandLine({}, (), ("train.py",))),
        ("train.py -- more", CommandLine({}, (), ("train.py", "--", "more"))),
        (
            "--nproc-per-node=2 train.py -- more",
            CommandLine({"nproc_per_node": "2"}, (), ("train.py", "--", "more")),
        ),
        (
            "--standalone --nproc_per_node 2 -m package.train",
            CommandLine({"standalone": "", "nproc_per_node": "2"}, (), ("-m", "package.train")),
        ),
        (
            "--log_dir logs -np 2 --tee 3 -- train.py",
            CommandLine({"np": "2"}, ("--log_dir", "logs", "--tee", "3"), ("train.py",)),
        ),
        ("--trial model:Trial", CommandLine({}, (), ("--trial", "model:Trial"))),
        ("", CommandLine({}, (), ())),
    ],
)
def test_options_end_where_the_script_begins(words: str, expected: CommandLine) -> None:
    assert parse_command_line(words.split(), ARITY) == expected


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("--log_dir logs train.py", "the option --log_dir"),
        ("--np", "--np lacks its value"),
        ("--np -- train.py", "--np lacks its value"),
    ],
)
def test_options_that_cannot_be_understood_are_refused(words: str, problem: str) -> None:
    with pytest.raises(WrongUsage, match=problem):
        parse_command_line(words.split(), ARITY)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("", "expected a script"),
        ("nowhere.py", "there is no file nowhere.py"),
        ("--trial model", "expected one MODULE:CLASS"),
        ("--trial model:Trial", "in experiments only"),
        ("-m", "expected the name of a module"),
    ],
)
def test_a_script_that_is_not_there_is_refused(words: str, problem: str) -> None:
    with pytest.raises(WrongUsage, match=problem):
        rank_command(tuple(words.split()))


def test_scripts_modules_and_other_programs_are_commands_of_a_rank() -> None:
    assert rank_command((__file__, "--lr", "1")) == (sys.executable, __file__, "--lr", "1")
    assert rank_command(("-m", "this")) == (sys.executable, "-m", "this")
    assert rank_command(("python3", "x.py")) == ("python3", "x.py")
    assert rank_command(("sh", "-c", "true"), any_program=True) == ("sh", "-c", "true")


def test_the_ranks_of_an_agent_are_those_of_a_computer() -> None:
    run = RunLayout(RunDir(Path("run")), ("left", "left", "right", "right"))
    variables = {"GROUP_RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "4000"}
    computers = computers_of(run, variables)
    assert (computers.index, computers.num, computers.num_ranks) == (1, 2, 2)
    place = computers.environment(1, computers.port())
    assert place == place | run.variables(3) | {"MASTER_PORT": "4000"}
    with pytest.raises(ValueError, match="GROUP_RANK: got '7'"):
        computers_of(run, {"GROUP_RANK": "7"})


def test_options_that_contradict_the_experiment_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "plan.json").write_text('{"slots": [{}, {}], "agent_ids": []}')
    monkeypatch.setenv(RUN_VARIABLE, str(tmp_path))
    monkeypatch.setenv("GROUP_RANK", "0")
    assert find_computers(CommandLine({}, (), ())).num_ranks == 2
    assert find_computers(CommandLine({"nproc_per_node": "1"}, (), ())).num_ranks == 1
    with pytest.raises(WrongUsage, match=r"got 3, but the trial has 2 slot"):
        find_computers(CommandLine({"nproc_per_node": "3"}, (), ()))
    with pytest.raises(WrongUsage, match="--nnodes: got 2, but the experiment has 1"):
        find_computers(CommandLine({"nnodes": "2"}, (), ()))


def test_several_computers_outside_of_experiments_need_an_address() -> None:
    with pytest.raises(WrongUsage, match="needs --node_rank, --master_addr and --master_port"):
        find_computers(CommandLine({"nnodes": "2"}, (), ()))


@pytest.mark.parametrize(("shown", "num"), [("", 0), ("-1", 0), ("0,1", 2), ("GPU-1,MIG-2,3", 3)])
def test_only_gpus_that_are_shown_to_us_count(shown: str, num: int) -> None:
    assert count_gpus({"CUDA_VISIBLE_DEVICES": shown}) == num


def test_mpirun_starts_each_rank_through_wrap_rank() -> None:
    ranks = "OMPI_COMM_WORLD_RANK,PMIX_RANK,PMI_RANK"
    command = ("./train",)
    assert mpirun_command("mpirun", RanksToStart(4), ("-x", "A"), command, is_open=True) == (
        *("mpirun", "-np", "4", "--bind-to", "none", "--oversubscribe"),
        *("--noprefix", "-x", "A"),
        *(*WRAP, ranks, "./train"),
    )
    bound = mpirun_command("mpirun", RanksToStart(4), ("--bind-to", "core"), command, is_open=True)
    assert bound.count("--bind-to") == 1
    assert mpirun_command("mpirun", RanksToStart(2), (), command, is_open=False) == (
        *("mpirun", "-n", "2"),
        *(*WRAP, ranks, "./train"),
    )


def test_horovodrun_starts_each_rank_through_wrap_rank() -> None:
    assert horovodrun_command(
        "horovodrun", RanksToStart(2), ("--verbose",), ("python3", "t.py")
    ) == (
        *("horovodrun", "-np", "2", "-H", "localhost:2", "--verbose"),
        *(*WRAP, "HOROVOD_RANK,OMPI_COMM_WORLD_RANK,PMI_RANK", "python3", "t.py"),
    )


def test_deepspeed_shows_its_ranks_the_devices_of_the_trial(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-2,GPU-3")
    computers = Computers(num_ranks=2, index=1, num=2, master_port=4000)
    command = deepspeed_command("deepspeed", computers, (), ("python3", "t.py"), Path("hosts"))
    assert command == (
        *("deepspeed", "--hostfile=hosts", "--no_ssh", "--node_rank=1"),
        *("--master_addr=127.0.0.1", "--master_port=4000", "--no_python", "--no_local_rank"),
        *(*WRAP, "RANK", "env", "CUDA_VISIBLE_DEVICES=GPU-2,GPU-3", "python3", "t.py"),
    )


@pytest.mark.parametrize("is_beside", [True, False])
def test_a_program_is_that_of_this_environment_or_else_of_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_beside: bool
) -> None:
    for folder in ("env", "path"):
        (tmp_path / folder).mkdir()
    monkeypatch.setattr(sys, "executable", str(tmp_path / "env" / "python"))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    with pytest.raises(ValueError, match="mpirun"):
        find_program("mpirun", "apt-get install openmpi-bin")
    for folder in ("path", "env") if is_beside else ("path",):
        program = tmp_path / folder / "mpirun"
        program.write_text("#!/bin/sh")
        program.chmod(0o700)
    assert find_program("mpirun", "apt-get install openmpi-bin") == str(program)
