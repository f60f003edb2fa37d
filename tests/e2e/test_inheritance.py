"""A master started by a bound, niced, limited task of a job; its trials are none of that."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import yaml

from det_jupyter.front.cli.__main__ import main
from tests.processes import DetHome, det_home, find, wait_until

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, and calls taskset"),
]

OF_A_JOB = {
    "SLURM_JOB_ID": "77", "SLURM_NTASKS": "4", "SLURM_PROCID": "2", "PMI_RANK": "2",
    "OMPI_COMM_WORLD_SIZE": "4", "TORCHELASTIC_RUN_ID": "x", "NODE_RANK": "1",
    "OMP_NUM_THREADS": "1", "CUDA_LAUNCH_BLOCKING": "1", "PL_GLOBAL_SEED": "3",
    "JPY_SESSION_NAME": "other.ipynb", "MPLBACKEND": "module://matplotlib_inline.backend_inline",
    "WANDB_RUN_ID": "x", "WANDB_NAME": "x", "MLFLOW_RUN_NAME": "x", "LT_DEVICES": "2",
    "NUMBA_NUM_THREADS": "1", "PYTHONWARNINGS": "error", "PYTHONOPTIMIZE": "1", "NSLOTS": "4",
    "TMPDIR": "/tmp",
}  # fmt: skip
PROBE = """
import json, os, resource, signal, sys
mask = os.umask(0)
os.umask(mask)
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
ignored = int(status["SigIgn"], 16)
limits = {n: resource.getrlimit(getattr(resource, f"RLIMIT_{n}")) for n in ("NOFILE", "CORE")}
json.dump({
    "cores": len(os.sched_getaffinity(0)), "nice": os.getpriority(os.PRIO_PROCESS, 0),
    "blocked": [int(n) for n in signal.pthread_sigmask(signal.SIG_BLOCK, ())],
    "ignored": [n for n in signal.Signals if ignored & 1 << n - 1],
    "score": int(open("/proc/self/oom_score_adj").read()),
    "umask": mask, "limits": limits, "variables": dict(os.environ),
}, open(sys.argv[1], "w"))
"""
# The folder is gone when the master starts; the limits are soft and hard.
STARTER = (
    "rmdir $PWD; ulimit -n 300; ulimit -c unlimited; umask 077; trap '' HUP QUIT ALRM TSTP; "
    "echo 700 > /proc/self/oom_score_adj; "
    "exec nice -n 7 taskset -c {core} {python} -m det_jupyter master start"
)


def without_dynamo(folders: pytest.TempPathFactory) -> str:
    """Return a PYTHONPATH: the fork server of scripts needs no compiler of torch ([m] 1.2 s)."""
    folder = folders.mktemp("site")
    (folder / "sitecustomize.py").write_text("import sys\nsys.modules['torch._dynamo'] = None\n")
    # Without an empty part: it would be the working directory, which is removed.
    return os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DetHome]:
    """Return a det_jupyter whose master was started from such a process."""
    gone = tmp_path_factory.mktemp("gone")
    variables = {"DET_JUPYTER_CPU_SLOTS": "2", "PYTHONPATH": without_dynamo(tmp_path_factory)}
    with det_home(tmp_path_factory.mktemp("home"), variables) as home:
        line = STARTER.format(core=min(os.sched_getaffinity(0)), python=sys.executable)
        subprocess.run(["bash", "-c", line], cwd=gone, env=os.environ | OF_A_JOB, check=True)
        yield home


@pytest.fixture(scope="module")
def probed(home: DetHome, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return what a trial finds that a process with umask 027 submits."""
    folder = tmp_path_factory.mktemp("submitted")
    found = folder / "found.json"
    config = {
        "name": "probe",
        "entrypoint": f"python3 probe.py {found}",
        "searcher": {"name": "single", "metric": "x", "max_length": {"batches": 1}},
        "environment": {"environment_variables": ["PMI_RANK=5", "SLURM_NTASKS"]},
    }
    (folder / "probe.yaml").write_text(yaml.safe_dump(config))
    (folder / "probe.py").write_text(PROBE)
    mask = os.umask(0o027)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            patch.setenv("SLURM_NTASKS", "9")
            assert main(["e", "create", "probe.yaml", ".", "--follow"]) == 0
    finally:
        os.umask(mask)
    facts: dict[str, Any] = json.loads(found.read_text())
    facts["mode of its file"] = found.stat().st_mode & 0o777
    return facts


@pytest.fixture(scope="module")
def listed(home: DetHome, probed: dict[str, Any]) -> dict[str, str]:
    """Return what `det slot list` and `det agent list` print."""
    said = {what: io.StringIO() for what in ("slot", "agent")}
    for what, output in said.items():
        with redirect_stdout(output):
            assert main([what, "list"]) == 0
    return {what: output.getvalue() for what, output in said.items()}


def test_trial_may_use_all_cores_at_the_usual_priority(
    listed: dict[str, str], probed: dict[str, Any]
) -> None:
    assert probed["cores"] == len(os.sched_getaffinity(0))
    assert probed["blocked"] == []
    assert set(probed["ignored"]) <= {signal.SIGPIPE, signal.SIGXFSZ}  # as Python has it
    assert probed["nice"] == 0 or "low priority (nice 7)" in listed["slot"]
    assert probed["score"] <= 0 or "(oom_score_adj 700)" in listed["slot"]


def test_trial_gets_the_umask_and_variables_of_its_own_submission(probed: dict[str, Any]) -> None:
    assert (probed["umask"], probed["mode of its file"]) == (0o027, 0o640)
    names = OF_A_JOB.keys() - {"PMI_RANK", "SLURM_NTASKS", "OMP_NUM_THREADS", "NODE_RANK"}
    assert {n: probed["variables"][n] for n in names if n in probed["variables"]} == {}
    assert (probed["variables"]["PMI_RANK"], probed["variables"]["SLURM_NTASKS"]) == ("5", "9")
    share = max(1, len(os.sched_getaffinity(0)) // 2)
    assert probed["variables"]["OMP_NUM_THREADS"] == str(share)


def test_limits_are_as_far_undone_as_is_allowed_and_named_at_the_slots(
    listed: dict[str, str], probed: dict[str, Any]
) -> None:
    soft, hard = probed["limits"]["NOFILE"]
    assert soft == hard
    if hard == 300:  # this process may not raise it
        for listing in listed.values():
            assert "trials can have 300 open files, which the agent has inherited" in listing
    assert probed["limits"]["CORE"][0] == soft_core_of_the_computer()


def test_master_and_agent_work_in_their_folder_with_a_umask_of_their_own(home: DetHome) -> None:
    agent = wait_until(lambda: find(home.path, "det_jupyter.agent"), "an agent runs")
    for process in (home.master(), agent):
        assert process.cwd() == str(home.path / "data")
        status = Path(f"/proc/{process.pid}/status").read_text()
        assert "Umask:\t0022" in status


def test_a_trial_runs_though_temporary_files_were_swept(
    home: DetHome, probed: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = home.path / "runtime" / "agent.sockets"
    before = Path(note.read_text())
    shutil.rmtree(before)
    config = {
        "name": "later",
        "entrypoint": "python3 later.py",
        "searcher": {"name": "single", "metric": "x", "max_length": {"batches": 1}},
    }
    (tmp_path / "later.yaml").write_text(yaml.safe_dump(config))
    (tmp_path / "later.py").write_text("print('ran')")
    monkeypatch.chdir(tmp_path)
    assert main(["e", "create", "later.yaml", ".", "--follow"]) == 0
    after = Path(note.read_text())
    assert after != before
    assert after.stat().st_mode & 0o777 == 0o700


def soft_core_of_the_computer() -> int:
    line = next(
        line for line in Path("/proc/1/limits").read_text().splitlines() if "core file" in line
    )
    value = line[25:].split()[0]
    return -1 if value == "unlimited" else int(value)
