"""Launchers that start the ranks themselves: they end together, and the first failure is shown."""

from __future__ import annotations

import errno
import os
import signal
from pathlib import Path

import pytest

from det_jupyter.launch import torch_distributed
from det_jupyter.launch.workers import Worker, run_workers
from tests.integration.launch_support import (
    failures,
    launch,
    make_run,
    script,
    start,
    wait_for_files,
)
from tests.processes import wait_until_gone

TWO = ("--nproc_per_node", "2")
SUMS = """
import sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
print("rank", dist.get_rank(), "of", int(total), *sys.argv[1:])
dist.destroy_process_group()
"""
# Rank 1 fails while rank 0, and a process that it has started, would run on for an hour.
ONE_FAILS = """
import os, pathlib, subprocess, sys, time
here = pathlib.Path(__file__).parent
if os.environ["RANK"] == "0":
    child = subprocess.Popen(["sleep", "3600"])
    (here / "pids.new").write_text(f"{os.getpid()} {child.pid}")
    os.rename(here / "pids.new", here / "pids")
    time.sleep(3600)
while not (here / "pids").exists():
    time.sleep(0.01)
print("about to fail")
sys.exit("shapes differ")
"""
SHOWS_ITS_PLACE = """
import os
names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR")
print(*(os.environ[name] for name in names))
"""


def pids_of(folder: Path) -> list[int]:
    return [int(pid) for pid in (folder / "pids").read_text().split()]


def test_a_script_of_torch_distributed_runs_on_two_ranks(tmp_path: Path) -> None:
    done = launch("torch_distributed", *TWO, script(tmp_path, SUMS), "--lr", "1")
    assert done.returncode == 0, done.stderr
    lines = sorted(done.stdout.decode().splitlines())
    assert lines == [f"[rank={rank}] rank {rank} of 2 --lr 1" for rank in range(2)]


def test_in_an_experiment_there_is_a_rank_for_each_slot_and_each_has_its_lines(
    tmp_path: Path,
) -> None:
    env = make_run(tmp_path / "run", num_slots=3)
    done = launch("torch_distributed", script(tmp_path, SHOWS_ITS_PLACE), env=env)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    shown = [(tmp_path / "run" / f"output-{rank}").read_text() for rank in range(3)]
    assert shown == [f"{rank} {rank} 3 3 0 127.0.0.1\n" for rank in range(3)]


def test_workers_are_waited_for_on_a_kernel_without_pidfds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(pid: int) -> int:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", refuse, raising=False)
    argv = ("sh", "-c", "echo late; exit 3")
    assert run_workers([Worker(rank=0, argv=argv, output=tmp_path / "out")], "test") == 3
    assert (tmp_path / "out").read_text() == "late\n"


def test_the_first_failure_ends_the_others_and_is_what_is_shown(tmp_path: Path) -> None:
    done = launch("torch_distributed", *TWO, script(tmp_path, ONE_FAILS))
    assert done.returncode == 1
    wait_until_gone(*pids_of(tmp_path))
    said = done.stderr.decode().splitlines()
    assert (
        "torch_distributed: the first failure: rank 1 failed with exit code 1; the other was ended"
        in said
    )
    assert set(said[-2:]) == {"  [rank=1] about to fail", "  [rank=1] shapes differ"}


def test_in_an_experiment_the_first_failure_is_in_the_journal_of_its_rank(tmp_path: Path) -> None:
    env = make_run(tmp_path / "run")
    done = launch("torch_distributed", script(tmp_path, ONE_FAILS), env=env)
    assert done.returncode == 1
    assert failures(tmp_path / "run", 0) == []
    (failure,) = failures(tmp_path / "run", 1)
    assert failure.error == "rank 1 failed with exit code 1"
    assert "about to fail\nshapes differ" in failure.traceback


def test_a_failure_that_the_rank_has_journaled_is_not_journaled_again(tmp_path: Path) -> None:
    env = make_run(tmp_path / "run", num_slots=1)
    fails = """
        import os, pathlib, sys
        line = '{"at":1.0,"rank":0,"error":"ValueError: x","traceback":"t","kind":"failure"}'
        pathlib.Path(os.environ["DET_JUPYTER_RUN_DIR"], "journal-0").write_text(line + chr(10))
        sys.exit(3)
    """
    assert launch("torch_distributed", script(tmp_path, fails), env=env).returncode == 3
    assert [each.error for each in failures(tmp_path / "run", 0)] == ["ValueError: x"]


def test_a_rank_that_a_signal_kills_is_a_failure_after_half_a_journal_line(tmp_path: Path) -> None:
    env = make_run(tmp_path / "run", num_slots=1)
    (tmp_path / "run" / "journal-0").write_text('{"half a')
    dies = script(tmp_path, "import os; os.kill(os.getpid(), 9)")
    done = launch("torch_distributed", dies, env=env)
    assert done.returncode == 128 + signal.SIGKILL
    half, whole = (tmp_path / "run" / "journal-0").read_text().splitlines()
    assert half == '{"half a'
    assert "rank 0 was killed by SIGKILL" in whole


def test_a_rank_that_does_not_end_when_asked_is_killed(tmp_path: Path) -> None:
    stubborn = """
        import os, pathlib, signal, sys, time
        ready = pathlib.Path(__file__).parent / "pids"
        if os.environ["RANK"] == "0":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            ready.write_text(str(os.getpid()))
            time.sleep(3600)
        while not ready.exists():
            time.sleep(0.01)
        sys.exit(4)
    """
    done = launch("torch_distributed", *TWO, script(tmp_path, stubborn))
    assert done.returncode == 4
    wait_until_gone(*pids_of(tmp_path))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_reach_the_ranks_which_may_end_well(tmp_path: Path, number: int) -> None:
    saves = f"""
        import os, pathlib, signal, sys, time
        here, rank = pathlib.Path(__file__).parent, os.environ["RANK"]
        def save(number, frame):
            (here / f"saved-{{rank}}").write_text("saved")
            sys.exit(0)
        signal.signal({int(number)}, save)
        (here / f"ready-{{rank}}").write_text("ready")
        time.sleep(3600)
    """
    process = start("torch_distributed", *TWO, script(tmp_path, saves))
    wait_for_files(tmp_path, "ready-0", "ready-1")
    process.send_signal(number)
    process.communicate()
    assert process.returncode == 0
    wait_for_files(tmp_path, "saved-0", "saved-1")


def test_a_launcher_that_is_ended_says_so_and_not_that_a_rank_failed(tmp_path: Path) -> None:
    waits = """
        import os, pathlib, time
        (pathlib.Path(__file__).parent / f"pid-{os.environ['RANK']}").write_text(str(os.getpid()))
        time.sleep(3600)
    """
    process = start("torch_distributed", *TWO, script(tmp_path, waits))
    pids = [int(text) for text in wait_for_files(tmp_path, "pid-0", "pid-1")]
    process.terminate()
    _, said = process.communicate()
    assert process.returncode == 128 + signal.SIGTERM
    assert said == b"torch_distributed: ended after SIGTERM\n"
    wait_until_gone(*pids)


def test_a_launcher_that_is_killed_leaves_no_rank_and_nothing_of_a_rank(tmp_path: Path) -> None:
    waits = """
        import os, pathlib, subprocess, time
        child = subprocess.Popen(["sleep", "60"])
        file = pathlib.Path(__file__).parent / f"pids-{os.environ['RANK']}"
        file.write_text(f"{os.getpid()} {child.pid}")
        time.sleep(60)
    """
    process = start("torch_distributed", *TWO, script(tmp_path, waits))
    texts = wait_for_files(tmp_path, "pids-0", "pids-1")
    process.kill()
    process.communicate()
    wait_until_gone(*(int(pid) for text in texts for pid in text.split()))


def test_other_options_are_torchruns_which_starts_the_ranks(tmp_path: Path) -> None:
    env = make_run(tmp_path / "run")
    logs = tmp_path / "logs"
    shows = """
        import os, sys
        names = ("RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID")
        rank, size, job = (os.environ[name] for name in names)
        print("rank", rank, "of", size, "in job", job, *sys.argv[1:])
    """
    done = launch(
        *("torch_distributed", "--log_dir", logs, "--rdzv_id=7", "--"),
        *(script(tmp_path, shows), "x"),
        env=env,
    )
    assert done.returncode == 0, done.stderr
    shown = [(tmp_path / "run" / f"output-{rank}").read_text() for rank in range(2)]
    assert shown == [f"rank {rank} of 2 in job 7 x\n" for rank in range(2)]
    assert logs.is_dir()


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("", "expected a script"),
        ("nowhere.py", "there is no file nowhere.py"),
        ("--nproc_per_node two train.py", "--nproc_per_node: got 'two'"),
        ("--tee 3 train.py", "got the option --tee, which is not known here"),
        ("--trial model:Trial", "--trial trains in experiments only"),
    ],
)
def test_wrong_usage_is_told_in_a_line(
    words: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert torch_distributed.main(words.split()) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"torch_distributed: {problem}")
    assert said.count("\n") == 1


def test_a_launcher_of_ones_own_needs_only_wrap_rank(tmp_path: Path) -> None:
    env = make_run(tmp_path / "run")
    own = """
        import queue, subprocess, sys, threading
        wrap = [sys.executable, "-m", "det_jupyter.launch.wrap_rank"]
        work = "import sys, time; rank = sys.argv[1]; print('rank', rank);"
        work += "time.sleep(3600 * (rank == '0')); sys.exit(6)"
        procs = [
            subprocess.Popen([*wrap, str(rank), "--", sys.executable, "-c", work, str(rank)])
            for rank in range(2)
        ]
        ended = queue.Queue()
        threads = [threading.Thread(target=lambda p=p: ended.put(p.wait())) for p in procs]
        for thread in threads:
            thread.start()
        first = 0
        for _ in procs:
            code = ended.get()
            if code and not first:
                first = code
                for proc in procs:
                    proc.kill()
        for thread in threads:
            thread.join()
        sys.exit(first)
    """
    done = launch("torch_distributed", "--nproc_per_node=1", script(tmp_path, own), env=env)
    assert done.returncode == 6
    assert (tmp_path / "run" / "output-1").read_text() == "rank 1\n"
