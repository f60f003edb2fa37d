"""Launchers that start their ranks by programs that are not ours, where these are installed."""

from __future__ import annotations

import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from det_jupyter.contract.host.rundir import STORE_VARIABLE
from tests.integration.launch_support import (
    environment,
    launch,
    make_run,
    script,
    start,
    wait_for_files,
)
from tests.processes import wait_until_gone

has_mpirun = pytest.mark.skipif(shutil.which("mpirun") is None, reason="needs mpirun")
has_mpi4py = pytest.mark.skipif(find_spec("mpi4py") is None, reason="needs mpi4py")
has_deepspeed = pytest.mark.skipif(find_spec("deepspeed") is None, reason="needs deepspeed")

SUMS = """
import os
from mpi4py import MPI
world = MPI.COMM_WORLD
print("rank", world.rank, "of", world.allreduce(1), "RANK", os.environ.get("RANK"))
"""
ONE_FAILS = """
import os, pathlib, sys, time
from mpi4py import MPI
rank = MPI.COMM_WORLD.rank
(pathlib.Path(__file__).parent / f"pid-{rank}").write_text(str(os.getpid()))
MPI.COMM_WORLD.barrier()
if rank == 1:
    raise ValueError("shapes differ")
time.sleep(3600)
"""


@has_mpirun
@has_mpi4py
def test_mpirun_starts_a_rank_for_each_slot_and_each_has_its_lines(tmp_path: Path) -> None:
    env = make_run(tmp_path / "run")
    done = launch("mpi", script(tmp_path, SUMS), env=env)
    assert done.returncode == 0, done.stderr
    shown = [(tmp_path / "run" / f"output-{rank}").read_text() for rank in range(2)]
    assert shown == [f"rank {rank} of 2 RANK {rank}\n" for rank in range(2)]


@has_mpirun
@has_mpi4py
def test_a_rank_of_mpirun_that_fails_ends_the_others(tmp_path: Path) -> None:
    done = launch("mpi", "-np", "2", script(tmp_path, ONE_FAILS))
    assert done.returncode == 1
    assert b"[rank=1] ValueError: shapes differ" in done.stderr
    assert done.stderr.endswith(b"mpi: mpirun failed with exit code 1\n")
    wait_until_gone(*(int((tmp_path / f"pid-{rank}").read_text()) for rank in range(2)))


@has_mpirun
def test_a_launcher_of_mpirun_that_is_killed_leaves_no_rank(tmp_path: Path) -> None:
    command = f"echo $$ > {tmp_path}/pid-$OMPI_COMM_WORLD_RANK; sleep 60"
    process = start("mpi", "-np", "2", "sh", "-c", command)
    pids = [int(text) for text in wait_for_files(tmp_path, "pid-0", "pid-1")]
    process.kill()
    process.communicate()
    wait_until_gone(*pids)


@has_mpirun
def test_files_of_mpirun_are_in_a_folder_of_the_run(tmp_path: Path) -> None:
    (tmp_path / "sockets").mkdir()
    env = make_run(tmp_path / "run") | {STORE_VARIABLE: str(tmp_path / "sockets" / "store-1")}
    process = start("mpi", "sh", "-c", f"echo $$ > {tmp_path}/pid-$RANK; exec sleep 60", env=env)
    pids = [int(text) for text in wait_for_files(tmp_path, "pid-0", "pid-1")]
    process.kill()
    process.communicate()
    wait_until_gone(*pids)
    assert [path.name[:4] for path in (tmp_path / "sockets").iterdir()] == ["ompi"]


@has_mpirun
def test_programs_that_are_no_python_are_ranks_too() -> None:
    done = launch("mpi", "-np", "2", "sh", "-c", "echo $OMPI_COMM_WORLD_RANK")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [b"[rank=0] 0", b"[rank=1] 1"]


@has_mpirun
def test_ranks_of_mpirun_find_programs_where_the_launcher_does(tmp_path: Path) -> None:
    hello = tmp_path / "env"  # there is one in mpirun's own folder, too
    hello.write_text("#!/bin/sh\necho mine\n")
    hello.chmod(0o755)
    env = environment()
    env["PATH"] = f"{tmp_path}:{env['PATH']}"
    done = launch("mpi", "-np", "1", "sh", "-c", "env", env=env)
    assert done.stdout == b"[rank=0] mine\n", done.stderr


@has_deepspeed
@pytest.mark.parametrize("options", [(), ("--log_level", "error", "--")])
def test_deepspeeds_ranks_find_each_other(tmp_path: Path, options: tuple[str, ...]) -> None:
    """Without options of its own they are started by us, else by the program `deepspeed`."""
    env = make_run(tmp_path / "run")
    sums = """
        import os, torch, deepspeed
        deepspeed.init_distributed("gloo", verbose=False)
        total = torch.ones(1)
        deepspeed.comm.all_reduce(total)
        names = ("RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE", "USE_DEEPSPEED")
        print("total", int(total), *(os.environ[name] for name in names))
        torch.distributed.destroy_process_group()
    """
    done = launch("deepspeed", *options, script(tmp_path, sums), env=env)
    assert done.returncode == 0, done.stderr
    shown = [(tmp_path / "run" / f"output-{rank}").read_text() for rank in range(2)]
    for rank in range(2):
        assert f"total 2 {rank} 2 0 1 1\n" in shown[rank]
    assert not list((tmp_path / "run").glob("hosts-*"))


@pytest.mark.parametrize(
    ("launcher", "words", "problem"),
    [
        ("mpi", ["echo"], "there is no program mpirun on this computer; install it with `apt-get"),
        ("horovod", ["-m", "this"], "there is no program horovodrun on this computer"),
        pytest.param(
            *("deepspeed", ["--quiet", "--", "-m", "this"], "there is no program deepspeed"),
            marks=pytest.mark.skipif(find_spec("deepspeed") is not None, reason="it is there"),
        ),
    ],
)
def test_a_program_that_is_not_there_is_told_in_a_line(
    tmp_path: Path, launcher: str, words: list[str], problem: str
) -> None:
    (tmp_path / "echo").symlink_to("/bin/echo")
    (tmp_path / "python").symlink_to(sys.executable)
    done = launch(launcher, *words, env=environment(PATH=str(tmp_path)))
    assert done.returncode == 2
    assert done.stderr.decode().startswith(f"{launcher}: {problem}")
    assert done.stderr.count(b"\n") == 1


def test_a_rank_by_itself_needs_no_horovod(tmp_path: Path) -> None:
    alone = script(tmp_path, "import os; print('rank', os.environ['RANK'])")
    done = launch("horovod", "--autohorovod", "-np", "1", alone)
    assert (done.returncode, done.stdout) == (0, b"[rank=0] rank 0\n")
