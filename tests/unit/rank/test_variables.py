"""The environment of scripts and commands, and what their exit codes mean."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from det_jupyter.agent.runs.specs import rank_places
from det_jupyter.contract.host import paths
from det_jupyter.contract.host.rundir import RUN_VARIABLE, SECRET_VARIABLE, without_run
from det_jupyter.contract.messages import (
    PROTOCOL,
    CheckpointRef,
    MasterInfo,
    RankSpec,
    SlotView,
)
from det_jupyter.rank.endings import ExitedWith, check_exit, describe_exit
from det_jupyter.rank.process import environment
from det_jupyter.rank.variables import left_out, script_variables, set_variables
from tests.integration.agent_support import make_plan

SLOTS = [SlotView(id=i % 2, kind="cpu", index=i, name="CPU") for i in range(4)]
HOMES = ["left", "left", "right", "right"]
LAUNCHER = "python3 -m determined.launch."


@pytest.fixture(autouse=True)
def _home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path))


def specs(entrypoint: str, **changes: object) -> list[RankSpec]:
    plan = make_plan("3.7.2", [], slots=SLOTS, agent_ids=HOMES, config={"entrypoint": entrypoint})
    plan = plan.model_copy(update={"trial_id": 7, "experiment_id": 3, "run": 2, **changes})
    return [
        RankSpec(
            plan=plan, place=place, run_dir="/run", data_dir="/data", socket_dir="/s",
            store="/s/store", secret="5e",
        )
        for place in rank_places(plan, lifeline_fd=3, num_threads=1, master_port=4000)
    ]  # fmt: skip


def test_a_command_has_a_process_on_each_computer_in_the_place_of_its_first_rank(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left, right = specs("./train.sh")
    assert (left.place.rank, right.place.rank) == (0, 2)
    assert (right.place.local_rank, right.place.local_world_size) == (0, 2)
    assert (right.place.group_rank, right.place.world_size) == (1, 4)
    of_a_rank = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}
    monkeypatch.setattr(os, "environ", {"RANK": "1"})
    set_variables(right, environment(right.plan, right.place))
    assert not os.environ.keys() & of_a_rank
    assert os.environ["GROUP_RANK"] == "1"
    assert len(specs("T")) == len(specs(f"{LAUNCHER}torch_distributed train.py")) == 4
    assert environment(specs("T")[3].plan, specs("T")[3].place)["RANK"] == "3"


def test_scripts_find_what_determined_tells_them_and_captured_code_needs_none_of_it() -> None:
    checkpoint = CheckpointRef(uuid="abc", path="/c", steps_completed=9)
    (_, right) = specs("python3 train.py", checkpoint=checkpoint)
    variables = script_variables(right)
    expected = {
        "DET_EXPERIMENT_ID": "3", "DET_TRIAL_ID": "7", "DET_TRIAL_RUN_ID": "2",
        "DET_TASK_ID": "3.7", "DET_TASK_TYPE": "TRIAL", "DET_ALLOCATION_ID": "3.7.2",
        "DET_AGENT_ID": "right", "DET_SLOT_IDS": "[0, 1]", "DET_SLOT_TYPE": "cpu",
        "DET_LATEST_CHECKPOINT": "abc", "DET_STEPS_COMPLETED": "9", "DET_CHIEF_IP": "127.0.0.1",
        RUN_VARIABLE: "/run",
    }  # fmt: skip
    assert variables == variables | expected
    assert json.loads(variables["DET_EXPERIMENT_CONFIG"]) == {"entrypoint": "python3 train.py"}
    assert "DET_SESSION_TOKEN" not in variables
    assert script_variables(specs("Trial")[0]) == {}
    imported = script_variables(specs("model_def:Trial")[0])
    assert imported["DET_TRIAL_ID"] == "7"
    assert SECRET_VARIABLE not in imported


def test_launchers_set_what_deepspeed_and_torch_look_up() -> None:
    torchs = script_variables(specs(f"{LAUNCHER}torch_distributed train.py")[0])
    assert torchs["USE_TORCH_DISTRIBUTED"] == "True"
    deepspeeds = script_variables(specs(f"{LAUNCHER}deepspeed train.py")[3])
    expected = {"USE_DEEPSPEED": "1", "LOCAL_SIZE": "2", "CROSS_RANK": "1", "CROSS_SIZE": "2"}
    assert deepspeeds == deepspeeds | expected


def test_a_variable_that_is_too_long_is_left_out() -> None:
    fits = 128 * 1024 - len("DET_HPARAMS=") - 1 - len('{"x": ""}')
    for more, out in ((0, []), (1, ["DET_HPARAMS"])):
        (spec, _) = specs("python3 train.py", hparams={"x": "a" * (fits + more)})
        assert left_out(spec) == out
        assert ("DET_HPARAMS" in script_variables(spec)) == (not out)


def test_the_environment_before_the_run_can_be_had_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {"PATH": "/bin", "RANK": "3", "CUDA_VISIBLE_DEVICES": "0"})
    before = dict(os.environ)
    (right, _) = specs("python3 train.py")
    set_variables(right, {"CUDA_VISIBLE_DEVICES": "", "A_TOKEN": "secret"})
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""
    assert "RANK" not in os.environ
    assert without_run(os.environ) == before


@pytest.mark.parametrize("code", [None, 0, False, 256])
def test_sys_exit_may_mean_success(code: int | None) -> None:
    check_exit("t.py", SystemExit(code))


@pytest.mark.parametrize(
    ("code", "expected", "says"),
    [
        (3, 3, "t.py ended with exit code 3"),
        (-1, 255, r"255 \(sys.exit\)$"),
        (137, 137, "as a shell says SIGKILL"),  # of a launcher
        ("bad data", 1, "bad data"),
    ],
)
def test_sys_exit_may_mean_failure(code: int | str, expected: int, says: str) -> None:
    with pytest.raises(ExitedWith, match=says) as caught:
        check_exit("t.py", SystemExit(code))
    assert caught.value.code == expected


@pytest.mark.parametrize(
    ("code", "expected", "says"),
    [
        (5, 5, "it ended with exit code 5"),
        (-15, 143, "it was killed by SIGTERM"),
        (137, 137, "exit code 137, as a shell says SIGKILL (by hand, or out of memory)"),
        (127, 127, "the shell has not found a program"),
        (255, 255, "it ended with exit code 255"),
    ],
)
def test_the_exit_code_of_a_command_says_what_ended_it(
    code: int, expected: int, says: str
) -> None:
    ended = describe_exit("it", code)
    assert says in str(ended)
    assert ("as a shell says" in str(ended)) == (code == 137)
    assert ended.code == expected


@pytest.mark.parametrize(
    ("entrypoint", "own", "expected"),
    [
        ("python3 train.py", {}, ("1", "1")),
        ("python3 train.py", {"PYTHONUNBUFFERED": "", "OMP_NUM_THREADS": "7"}, ("", "7")),
        ("model_def:Trial", {}, (None, None)),
    ],
)
def test_what_a_program_starts_prints_at_once_and_has_the_ranks_threads(
    monkeypatch: pytest.MonkeyPatch,
    entrypoint: str,
    own: dict[str, str],
    expected: tuple[str | None, str | None],
) -> None:
    monkeypatch.setattr(os, "environ", {"PATH": "/bin", **own})
    set_variables(specs(entrypoint)[0], {})
    assert (os.environ.get("PYTHONUNBUFFERED"), os.environ.get("OMP_NUM_THREADS")) == expected


def test_scripts_find_the_master_as_long_as_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path))
    spec = specs("python3 train.py")[0]
    assert "DET_MASTER" not in script_variables(spec)
    info = MasterInfo(
        url="http://127.0.0.1:7", token="t", pid=1, started_at=0.0, version="0",
        protocol=PROTOCOL, python="python", data_dir="/",
    )  # fmt: skip
    paths.write_private(paths.master_file(), info.model_dump_json())
    assert script_variables(spec)["DET_MASTER"] == "http://127.0.0.1:7"
    paths.write_private(paths.master_file(), "of another version")
    assert "DET_MASTER" not in script_variables(spec)
