"""What each launcher starts: its ranks with their variables, or another launcher's program."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from det_jupyter.contract.host.rundir import RUN_VARIABLE, STORE_VARIABLE, RunDir
from det_jupyter.launch import (
    chief_launcher,
    deepspeed,
    horovod,
    mpi,
    torch_distributed,
    wrap_rank,
)
from det_jupyter.launch.computers import Computers, RunLayout, computers_of, count_gpus, find_run
from det_jupyter.launch.workers import Worker

WRAP = (sys.executable, "-m", "det_jupyter.launch.wrap_rank", "--with-parent")
CODE = (sys.executable, "-m", "train")


class Started(list[Worker]):
    """The workers that a launcher has started; they end with this code."""

    code = 0

    def __call__(self, workers: Sequence[Worker], name: str, **_: Any) -> int:
        self.extend(workers)
        return self.code


@pytest.fixture(autouse=True)
def started(monkeypatch: pytest.MonkeyPatch) -> Started:
    """Have launchers start nothing, outside of experiments, on a computer without GPUs."""
    started = Started()
    for module in (torch_distributed, chief_launcher, deepspeed, wrap_rank):
        monkeypatch.setattr(module, "run_workers", started)
    for module in (mpi, horovod, deepspeed):
        monkeypatch.setattr(module, "find_program", lambda name, how: f"/bin/{name}")
    for name in (RUN_VARIABLE, STORE_VARIABLE, "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    return started


@pytest.fixture
def in_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Make this process one of a run, on a computer of it."""

    def make(*homes: str, group: str = "0", **variables: str) -> Path:
        plan = {"slots": [{}] * len(homes), "agent_ids": list(homes)}
        (tmp_path / "plan.json").write_text(json.dumps(plan))
        given = {RUN_VARIABLE: str(tmp_path), "GROUP_RANK": group, **variables}
        for name, value in given.items():
            monkeypatch.setenv(name, value)
        return tmp_path

    return make


def test_a_run_is_that_of_the_plan_in_its_folder(in_run: Callable[..., Path]) -> None:
    assert find_run() is None
    folder = in_run("a", "a", "b", "b")
    run = find_run()
    assert run is not None
    assert (run.groups(), run.homes) == (["a", "b"], ("a", "a", "b", "b"))
    assert run.variables(3) == {
        "RANK": "3",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
        "GROUP_RANK": "1",
        "GROUP_WORLD_SIZE": "2",
    }
    (folder / "plan.json").write_text('{"slots": [{}, {}]}')
    assert find_run() == RunLayout(run.folder, ("", ""))
    (folder / "plan.json").unlink()
    assert find_run() is None


def test_the_computers_of_a_run_share_an_address_and_only_several_a_port(
    in_run: Callable[..., Path],
) -> None:
    in_run("a", "a", "b", "b", group="1", MASTER_ADDR="10.0.0.1", MASTER_PORT="7000")
    run = find_run()
    assert run is not None
    found = computers_of(run)
    assert (found.num_ranks, found.index, found.num, found.first_rank) == (2, 1, 2, 2)
    assert (found.master_addr, found.master_port, found.port()) == ("10.0.0.1", 7000, 7000)
    in_run("a", "a", MASTER_PORT="7000")
    run = find_run()
    assert run is not None
    assert computers_of(run, {"GROUP_RANK": "0"}).master_addr == "127.0.0.1"
    assert computers_of(run).master_port is None


@pytest.mark.parametrize(
    ("homes", "group", "problem"),
    [
        (("a", "b"), "2", r"GROUP_RANK: got '2', .*\(0 to 1\)"),
        (("a", "b"), "x", "GROUP_RANK: got 'x'"),
        (("a", "a", "b"), "0", "different numbers of slots: a 2, b 1"),
    ],
)
def test_a_process_without_a_place_in_its_run_is_refused(
    in_run: Callable[..., Path], homes: tuple[str, ...], group: str, problem: str
) -> None:
    in_run(*homes, group=group)
    run = find_run()
    assert run is not None
    with pytest.raises(ValueError, match=problem):
        computers_of(run)


def test_each_rank_has_its_share_of_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS")
    monkeypatch.setattr(os, "sched_getaffinity", {0: set(range(7))}.__getitem__)
    assert Computers(num_ranks=2).environment(0, 1)["OMP_NUM_THREADS"] == "3"
    assert Computers(num_ranks=9).environment(0, 1)["OMP_NUM_THREADS"] == "1"


def test_gpus_are_those_that_are_shown_or_that_the_driver_lists(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import pynvml

    assert count_gpus({"CUDA_VISIBLE_DEVICES": "3, 1,-1,"}) == 2
    closed: list[bool] = []
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: 4)
    monkeypatch.setattr(pynvml, "nvmlShutdown", lambda: closed.append(True))
    assert (count_gpus({}), closed) == (4, [True])

    def fail() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", fail)
    assert (count_gpus({}), closed) == (0, [True])


def test_ranks_of_torch_distributed_have_torchruns_variables(started: Started) -> None:
    words = "--nproc_per_node 2 --nnodes 2 --node_rank 1 --master_addr h --master_port 7 -m train"
    assert torch_distributed.main(words.split()) == 0
    first, second = started
    assert (first.rank, first.argv, first.output, first.prefix) == (2, CODE, None, b"[rank=2] ")
    assert second.env == {
        "PYTHONUNBUFFERED": "1",
        "PYTHONFAULTHANDLER": "1",
        "RANK": "3",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
        "GROUP_RANK": "1",
        "GROUP_WORLD_SIZE": "2",
        "ROLE_RANK": "3",
        "ROLE_WORLD_SIZE": "4",
        "MASTER_ADDR": "h",
        "MASTER_PORT": "7",
        "DET_CHIEF_IP": "h",
        "OMP_NUM_THREADS": "3",
        "USE_TORCH_DISTRIBUTED": "True",
    }


def test_without_options_there_is_a_rank_for_each_gpu_or_one(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    started.code = -9
    assert torch_distributed.main(["--max_restarts=0", "-m", "train"]) == 137
    [only] = started
    assert (only.rank, only.env["WORLD_SIZE"], only.env["MASTER_ADDR"]) == (0, "1", "127.0.0.1")
    assert only.env["GROUP_RANK"] == "0"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2")
    for words in ([], ["--nproc_per_node=gpu"], ["--nproc_per_node=auto"]):
        started.clear()
        torch_distributed.main([*words, "-m", "train"])
        assert len(started) == 3


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("--nproc_per_node=gpu -m train", "--nproc_per_node gpu: this computer has no GPU"),
        ("--nproc_per_node=0 -m train", "--nproc_per_node: got '0', expected a whole"),
        ("--nnodes=2 -m train", "--nnodes 2 needs --node_rank, --master_addr and --master_port"),
        ("--node_rank=1 -m train", "--node_rank: got 1, expected less than --nnodes, 1"),
        ("--master_port=0 -m train", "--master_port: got '0', expected a whole number from 1"),
        ("", "expected a script"),
    ],
)
def test_what_torch_distributed_cannot_start_is_refused(
    words: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert torch_distributed.main(words.split()) == 2
    assert f"torch_distributed: {problem}" in capsys.readouterr().err


def test_other_options_are_torchruns(started: Started) -> None:
    words = ["--nproc_per_node=2", "--max_restarts=3", "--tee", "1", "--", "-m", "train"]
    assert torch_distributed.main([*words[:-3], "--master_port=7", *words[-3:]]) == 0
    [only] = started
    assert only.rank is None
    assert only.argv == (
        *(sys.executable, "-m", "torch.distributed.run"),
        *("--nproc_per_node=2", "--nnodes=1", "--node_rank=0"),
        *("--master_addr=127.0.0.1", "--master_port=7", "--max_restarts=3", "--tee", "1"),
        *("-m", "det_jupyter.launch.wrap_rank", "--with-parent", "RANK"),
        *CODE,
    )
    started.clear()
    torch_distributed.main(["--max_restarts=3", "-m", "train"])  # torchrun's, too
    assert "--max_restarts=3" in started[0].argv


def test_in_an_experiment_ranks_are_its_slots_and_print_into_their_files(
    started: Started, in_run: Callable[..., Path]
) -> None:
    folder = in_run("a", "a", "b", "b", group="1", MASTER_PORT="7000")
    assert torch_distributed.main(["-m", "train"]) == 0
    assert [each.rank for each in started] == [2, 3]
    assert started[0].output is not None
    assert started[0].output.parent == folder
    assert started[0].env["MASTER_PORT"] == "7000"
    started.clear()
    torch_distributed.main(["--nproc_per_node=1", "--master_port=9", "-m", "train"])
    assert [(each.rank, each.env["MASTER_PORT"]) for each in started] == [(1, "9")]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--nproc_per_node=3"], "got 3, but the trial has 2 slot(s) on this computer"),
        (["--nnodes=1"], "--nnodes: got 1, but the experiment has 2"),
        (["--node_rank=0"], "--node_rank: got 0, but the experiment has 1"),
    ],
)
def test_options_that_contradict_the_experiment_are_refused(
    in_run: Callable[..., Path],
    words: list[str],
    problem: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    in_run("a", "a", "b", "b", group="1")
    assert torch_distributed.main([*words, "-m", "train"]) == 2
    assert problem in capsys.readouterr().err
    same = ["--nproc_per_node=2", "--nnodes=2", "--node_rank=1"]
    assert torch_distributed.main([*same, "-m", "train"]) == 0


def test_deepspeed_starts_ranks_itself_with_its_variables(started: Started) -> None:
    words = "--num_gpus=2 --num_nodes=2 --node_rank=1 --master_addr=h --master_port=7 -m train"
    assert deepspeed.main(words.split()) == 0
    first, _ = started
    assert (first.rank, first.env["WORLD_SIZE"]) == (2, "4")
    own = ("USE_DEEPSPEED", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")
    assert [first.env[name] for name in own] == ["1", "2", "1", "2"]


def test_other_options_are_deepspeeds_which_gets_a_file_of_the_computers(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def run(workers: Sequence[Worker], name: str, **_: Any) -> int:
        hostfile = next(word for word in workers[0].argv if word.startswith("--hostfile="))
        seen.append(Path(hostfile.partition("=")[2]).read_text())
        return started(workers, name)

    monkeypatch.setattr(deepspeed, "run_workers", run)
    started.code = -15
    words = "--num_gpus=2 --num_nodes=2 --node_rank=1 --master_addr=h --master_port=7 --x -- -m t"
    assert deepspeed.main(words.split()) == 143
    assert seen == ["computer-0 slots=2\ncomputer-1 slots=2\n"]
    [only] = started
    assert (only.rank, only.argv[0], only.env) == (None, "/bin/deepspeed", {"USE_DEEPSPEED": "1"})
    assert deepspeed.main(["--num_gpus=x", "-m", "t"]) == 2


def test_horovod_starts_a_rank_for_each_or_one_alone(
    started: Started, in_run: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert horovod.main(["-np", "2", "-m", "train"]) == 0
    [only] = started
    assert only.argv[:5] == ("/bin/horovodrun", "-np", "2", "-H", "localhost:2")
    assert only.env == {"USE_HOROVOD": "1"}
    started.clear()
    assert horovod.main(["--autohorovod", "-m", "train"]) == 0
    assert [(each.rank, each.argv) for each in started] == [(0, CODE)]
    started.clear()
    assert horovod.main(["--autohorovod", "--num-proc", "2", "-m", "train"]) == 0
    assert started[0].rank is None
    assert horovod.main(["-np", "0", "-m", "train"]) == 2
    assert "horovod: --np: got '0'" in capsys.readouterr().err


def test_mpirun_is_called_with_what_root_and_the_run_need(
    started: Started, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(mpi, "_is_open_mpi", lambda program: True)
    monkeypatch.setattr(mpi, "aborting", lambda command: ("aborting", *command))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv(STORE_VARIABLE, str(tmp_path / "store"))
    started.code = 3
    assert mpi.main(["-n", "2", "-m", "train"]) == 3
    [only] = started
    assert only.argv[:3] == ("/bin/mpirun", "-np", "2")
    assert only.argv[-4:] == ("aborting", *CODE)
    assert only.env == {
        "OMPI_MCA_orte_tmpdir_base": str(tmp_path),
        "PRTE_MCA_prte_tmpdir_base": str(tmp_path),
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.delenv(STORE_VARIABLE)
    started.clear()
    mpi.main(["-m", "train"])
    assert started[0].env == {}
    assert started[0].argv[2] == "1"
    assert mpi.main(["-n", "x", "-m", "train"]) == 2


@pytest.mark.parametrize(
    ("words", "is_found", "expected"),
    [
        (("train.py",), True, ("-m", "mpi4py", "train.py")),
        (("-m", "train"), True, ("-m", "mpi4py", "-m", "train")),
        (("-m", "mpi4py", "t.py"), True, ("-m", "mpi4py", "t.py")),
        (("-c", "pass"), True, ("-c", "pass")),
        (("train.py",), False, ("train.py",)),
        ((), True, ()),
    ],
)
def test_our_python_is_run_through_mpi4py_where_that_is_installed(
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    is_found: bool,
    expected: tuple[str, ...],
) -> None:
    monkeypatch.setattr(mpi, "find_spec", lambda name: object() if is_found else None)
    assert mpi.aborting((sys.executable, *words)) == (sys.executable, *expected)
    assert mpi.aborting(("/bin/sh", *words)) == ("/bin/sh", *words)


def test_the_launchers_of_other_computers_wait_for_the_first(
    started: Started,
    in_run: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    store = tmp_path / "store"
    in_run("a", "b", **{STORE_VARIABLE: str(store)})
    started.code = 5
    assert horovod.main(["-m", "train"]) == 5
    assert Path(f"{store}-launcher").read_text() == "5"
    assert started[0].argv[2] == "2"
    in_run("a", "b", group="1", **{STORE_VARIABLE: str(store)})
    assert horovod.main(["-m", "train"]) == 5  # it starts nothing
    assert len(started) == 1
    in_run("a", "b", **{STORE_VARIABLE: str(store)})
    monkeypatch.setattr(chief_launcher, "run_workers", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        horovod.main(["-m", "train"])
    assert Path(f"{store}-launcher").read_text() == "1"


def test_more_ranks_than_slots_are_refused(
    in_run: Callable[..., Path], capsys: pytest.CaptureFixture[str], started: Started
) -> None:
    in_run("a", "a")
    assert horovod.main(["-np", "3", "-m", "train"]) == 2
    assert "-np: got 3, but the trial has 2 slot(s)" in capsys.readouterr().err
    assert horovod.main(["-np", "1", "-m", "train"]) == 0
    assert horovod.main(["-np", "2", "-m", "train"]) == 0
    assert [each.argv[2] for each in started] == ["1", "2"]
    assert not list(Path(os.environ[RUN_VARIABLE]).glob("*-launcher"))


@pytest.mark.parametrize(
    ("words", "rank"), [("7", 7), ("GONE,MPI_RANK", 4), ("MPI_RANK, WRONG", 4)]
)
def test_the_rank_is_a_number_or_in_the_first_variable_that_is_set(
    monkeypatch: pytest.MonkeyPatch, words: str, rank: int
) -> None:
    monkeypatch.setenv("MPI_RANK", "4")
    monkeypatch.setenv("WRONG", "x")
    assert wrap_rank.find_rank(words) == rank


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("-1", "got the rank '-1', expected a number from 0, or names"),
        ("A,2", "got the rank 'A,2'"),
        ("GONE,WRONG", "the variable WRONG is 'x', expected a number from 0"),
        ("GONE", "none of the variables GONE is set"),
    ],
)
def test_a_rank_that_cannot_be_found_is_refused(
    monkeypatch: pytest.MonkeyPatch, words: str, problem: str
) -> None:
    monkeypatch.setenv("WRONG", "x")
    with pytest.raises(ValueError, match=problem):
        wrap_rank.find_rank(words)


def test_a_wrapped_rank_prints_with_its_prefix_or_becomes_the_command(
    started: Started,
    in_run: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    became: list[Any] = []

    def become(run: RunLayout, rank: int, command: list[str]) -> int:
        became.append((rank, command))
        return 126

    monkeypatch.setattr(wrap_rank, "become", become)
    started.code = 6
    assert wrap_rank.main(["1", "--", "sh", "-c", "true"]) == 6
    [worker] = started
    assert (worker.rank, worker.argv) == (1, ("sh", "-c", "true"))
    assert (worker.prefix, worker.closes_stdin) == (b"[rank=1] ", False)
    folder = in_run("a", "a")
    assert wrap_rank.main(["1", "sh"]) == 126
    assert became == [(1, ["sh"])]
    assert wrap_rank.main(["--no-redirect-stdio", "1", "sh"]) == 6
    assert wrap_rank.main(["2", "sh"]) == 6  # the run has no such rank
    assert len(became) == 1
    assert wrap_rank.main(["1", "gone-command"]) == 127
    assert "wrap_rank: rank 1 cannot run gone-command" in capsys.readouterr().err
    assert "rank 1 cannot run gone-command" in RunDir(folder).journal(1).read_text()
    for words in (["--other", "1", "sh"], ["1"], ["-1", "sh"]):
        assert wrap_rank.main(words) == 2
