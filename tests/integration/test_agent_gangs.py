"""A real agent and its zygote carry gangs of stand-in ranks, ordered by a fake master."""

from __future__ import annotations

import json
import os
import shutil
import signal
import statistics
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest

from det_jupyter.contract.messages import SlotView, StartGang
from det_jupyter.contract.run.control_page import ControlPage
from tests.integration.agent_support import (
    AgentProcess,
    FakeMaster,
    agent_with_master,
    files_of,
    make_interpreter,
    make_plan,
    torch_built_for,
)
from tests.processes import is_gone, wait_until, wait_until_gone

FOREVER: list[list[Any]] = [["sleep", 3600]]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[AgentProcess, FakeMaster]]:
    home = tmp_path_factory.mktemp("agent") / "home"
    with agent_with_master(home, {"DET_JUPYTER_CPU_SLOTS": "8"}) as pair:
        yield pair


@pytest.fixture
def agent(pair: tuple[AgentProcess, FakeMaster]) -> AgentProcess:
    return pair[0]


@pytest.fixture
def master(pair: tuple[AgentProcess, FakeMaster]) -> FakeMaster:
    return pair[1]


def facts_of(path: Path, rank: int) -> dict[str, Any]:
    file = path.with_name(f"{path.name}-{rank}")
    wait_until(file.exists, f"rank {rank} has told")
    facts: dict[str, Any] = json.loads(file.read_text())
    return facts


def assert_only_the_ranks_can_meet(facts: list[dict[str, Any]]) -> None:
    secret, store = facts[0]["secret"], Path(facts[0]["store"])
    assert len(bytes.fromhex(secret)) == 32
    assert store.parent.stat().st_mode & 0o777 == 0o700
    for fact in facts:
        assert (fact["secret"], fact["store"]) == (secret, str(store))
        assert secret not in fact["argv"]
        assert secret not in str(fact["environ"])
    assert facts[0]["place"]["master_port"] == facts[1]["place"]["master_port"] > 0


def test_agent_registers_the_slots_of_its_computer(master: FakeMaster) -> None:
    registration = master.registrations[0]
    assert [slot.id for slot in registration.slots] == list(range(8))
    assert registration.runs == []


def test_forked_rank_is_a_clean_process_of_its_own(
    agent: AgentProcess, master: FakeMaster, tmp_path: Path
) -> None:
    note = tmp_path / "facts"
    plan = make_plan("facts", [["tell", str(note)], *FOREVER])
    started = master.begin(plan)
    facts = [facts_of(note, rank) for rank in (0, 1)]
    assert started.note == "forked from the zygote"
    assert [rank.pid for rank in started.ranks] == [fact["pid"] for fact in facts]
    (zygote,) = agent.zygotes()
    lifeline = str(facts[0]["place"]["lifeline_fd"])
    for rank, fact in enumerate(facts):
        assert fact["group"] == fact["pid"]
        assert fact["parent"] == zygote.pid
        assert fact["threads"] == 1
        assert fact["has_torch"]
        assert fact["sigchld"]
        for variable in ("OPENBLAS_NUM_THREADS", "PYTORCH_NVML_BASED_CUDA_CHECK"):
            assert variable not in fact["environ"]
            assert fact["environ_at_import"][variable] == "1"
        assert fact["file_limits"][0] == fact["file_limits"][1]  # it began with 256
        assert (fact["place"]["rank"], fact["place"]["world_size"]) == (rank, 2)
        # the last one is the listing itself
        assert len(set(fact["descriptors"]) - {"0", "1", "2", lifeline}) == 1
    assert_only_the_ranks_can_meet(facts)
    assert len(facts[0]["socket_dir"]) < 40
    assert os.stat(facts[0]["socket_dir"]).st_mode & 0o777 == 0o700
    master.kill("facts")


def test_all_that_ranks_write_arrives_once_and_then_the_end(
    agent: AgentProcess, master: FakeMaster
) -> None:
    acts = [
        ["journal", 500],
        ["print", "gr\u00fc\u00df dich\u2028you"],
        ["write", "\xff\xfe, no end"],
    ]
    master.begin(make_plan("whole", acts))
    ended = master.end_of("whole")
    assert ended.exit_codes == {0: 0, 1: 0}
    assert (ended.first_failed, ended.killed, ended.lost, ended.error) == (None, False, False, "")
    folder = files_of(agent.home, "whole")
    for rank in (0, 1):
        assert master.text("whole", f"journal-{rank}") == folder.journal(rank).read_text()
        assert master.text("whole", f"journal-{rank}").count("\n") == 500
        assert master.text("whole", f"output-{rank}") == (
            "gr\u00fc\u00df dich\u2028you\n\ufffd\ufffd, no end\n"
        )


def test_closed_run_leaves_nothing(
    agent: AgentProcess, master: FakeMaster, tmp_path: Path
) -> None:
    note = tmp_path / "facts"
    master.begin(make_plan("closing", [["tell", str(note)], ["journal", 1]]))
    sockets = Path(facts_of(note, 0)["socket_dir"])
    master.end_of("closing")
    assert sockets.is_dir()
    master.close("closing")
    folder = files_of(agent.home, "closing").path
    wait_until(lambda: not folder.exists(), "its files are removed")
    wait_until(lambda: not sockets.exists(), "its sockets are removed")


def test_gang_is_started_once_however_often_it_is_ordered(
    agent: AgentProcess, master: FakeMaster
) -> None:
    plan = make_plan("twice", FOREVER)
    first = master.begin(plan)
    master.order(StartGang(plan=plan))
    master.begin(make_plan("after-twice", []))  # commands are obeyed in order
    (zygote,) = agent.zygotes()
    assert {rank.pid for rank in first.ranks} <= {child.pid for child in zygote.children()}
    assert master.started["twice"] == first
    master.kill("twice")


def test_exception_in_one_rank_ends_the_gang(master: FakeMaster) -> None:
    acts = {"0": FOREVER, "1": [["sleep", 0.2], ["fail", "shapes differ"]], "2": FOREVER}
    started = master.begin(make_plan("raises", acts, slots=3))
    pid = started.ranks[1].pid
    wait_until(lambda: is_gone(pid), "the rank has failed")
    ended = master.end_of("raises")
    assert ended.exit_codes == {0: -9, 1: 1, 2: -9}
    assert (ended.first_failed, ended.killed, ended.lost) == (1, False, False)
    assert "ValueError: shapes differ" in master.text("raises", "output-1")
    assert all(is_gone(rank.pid) for rank in started.ranks)


def test_rank_killed_from_outside_ends_the_gang(master: FakeMaster) -> None:
    started = master.begin(make_plan("shot", FOREVER))
    os.kill(started.ranks[0].pid, signal.SIGKILL)
    ended = master.end_of("shot")
    assert (ended.exit_codes, ended.first_failed) == ({0: -9, 1: -9}, 0)
    assert is_gone(started.ranks[1].pid)


def test_run_whose_folder_is_removed_blames_no_rank(
    agent: AgentProcess, master: FakeMaster
) -> None:
    started = master.begin(make_plan("removed", FOREVER))
    folder = files_of(agent.home, "removed").path
    shutil.rmtree(folder)
    os.kill(started.ranks[1].pid, signal.SIGKILL)
    ended = master.end_of("removed")
    assert f"the run's folder was removed while it trained: {folder}" in ended.error
    assert ended.error_is_final is False


def test_process_that_a_rank_has_started_ends_with_it(master: FakeMaster, tmp_path: Path) -> None:
    note = tmp_path / "child"
    master.begin(make_plan("parent", {"0": [["child", str(note)]], "1": []}))
    master.end_of("parent")
    wait_until_gone(int(note.read_text()))


def test_signalled_gang_leaves_by_itself(master: FakeMaster) -> None:
    master.begin(make_plan("preempted", [["obey", 0]]))
    master.signal("preempted", timeout_s=60)
    ended = master.end_of("preempted")
    assert (ended.exit_codes, ended.killed) == ({0: 0, 1: 0}, False)


def test_a_rank_that_writes_a_checkpoint_is_not_ended_with_another(
    agent: AgentProcess, master: FakeMaster, tmp_path: Path
) -> None:
    end = tmp_path / "end"
    acts = {"0": [["save", str(end)], *FOREVER], "1": FOREVER}
    started = master.begin(make_plan("saving", acts))
    with closing(ControlPage(files_of(agent.home, "saving").control)) as page:
        wait_until(lambda: page.draft() is not None, "it writes a checkpoint")
    os.kill(started.ranks[1].pid, signal.SIGKILL)
    wait_until_gone(started.ranks[1].pid)
    end.touch()
    assert master.end_of("saving").exit_codes == {0: -9, 1: -9}
    assert master.text("saving", "journal-0") == '{"stored": true}\n'


def test_gang_that_does_not_leave_in_time_is_killed(master: FakeMaster) -> None:
    master.begin(make_plan("stubborn", FOREVER))
    master.signal("stubborn", timeout_s=0.3)
    master.signal("stubborn", timeout_s=60)  # said again, it gives no more time
    ended = master.end_of("stubborn")
    assert (ended.exit_codes, ended.killed) == ({0: -9, 1: -9}, True)
    assert ended.first_failed is None


def test_chatty_rank_is_not_held_up_and_all_its_output_arrives(
    agent: AgentProcess, master: FakeMaster
) -> None:
    num_bytes = 28_000_000  # 16 MiB stay, and a hole has 8
    master.begin(make_plan("chatty", {"0": [["chat", num_bytes]], "1": [["journal", 3]]}))
    ended = master.end_of("chatty")
    assert ended.exit_codes == {0: 0, 1: 0}
    text, file = master.text("chatty", "output-0"), files_of(agent.home, "chatty").output(0).stat()
    assert len(text.encode()) == file.st_size >= num_bytes
    assert set(text) == {"x", "é", "\n"}  # and nothing of the hole that is in the file by now
    assert 512 * file.st_blocks < num_bytes
    wrote_to = json.loads(master.text("chatty", "journal-0"))
    assert wrote_to == {"is_file": True}  # which takes it, whether or not it is read


def test_records_reach_the_master_soon(master: FakeMaster) -> None:
    master.begin(make_plan("ticking", {"0": [["tick", 0.25]], "1": FOREVER}))
    wait_until(lambda: master.text("ticking", "journal-0").count("\n") >= 8, "8 ticks came")
    master.kill("ticking")
    lines = [
        chunk.text.count("\n")
        for chunk in master.arrivals
        if chunk.stream == "journal-0" and chunk.allocation_id == "ticking"
    ]
    assert statistics.median(lines) == 1  # before the next: an idle agent looks once a second


GPUS = [SlotView(id=i, kind="cuda", index=i, name="H100", uuid=f"GPU-{i}") for i in range(2)]


@pytest.fixture(scope="module")
def without_cuda(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_interpreter(tmp_path_factory.mktemp("cpu") / "env", torch=torch_built_for(None))


def test_two_interpreters_work_side_by_side(
    agent: AgentProcess, master: FakeMaster, tmp_path: Path, without_cuda: str
) -> None:
    note = tmp_path / "facts"
    acts = [["tell", str(note)], *FOREVER]
    ours = master.begin(make_plan("ours", FOREVER))
    theirs = master.begin(make_plan("theirs", acts, python=without_cuda))
    assert facts_of(note, 0)["python"] == without_cuda
    assert theirs.note == "forked from the zygote"
    assert len(agent.zygotes()) >= 2
    assert len({psutil.Process(rank.pid).ppid() for rank in [*ours.ranks, *theirs.ranks]}) == 2
    for allocation_id in ("ours", "theirs"):
        master.kill(allocation_id)


def test_torch_without_cuda_is_not_given_gpus(master: FakeMaster, without_cuda: str) -> None:
    master.order(StartGang(plan=make_plan("cpu-build", [], python=without_cuda, slots=GPUS)))
    ended = master.end_of("cpu-build")
    assert ended.error == (
        f"the torch of {without_cuda} is built without CUDA but the slots are GPUs; install a "
        "CUDA build of torch there, or set DET_JUPYTER_CPU_SLOTS to train on CPU cores"
    )
    assert ended.error_is_final


def test_interpreter_that_does_not_exist_is_named(master: FakeMaster) -> None:
    master.order(StartGang(plan=make_plan("nowhere", [], python="/nowhere/bin/python")))
    ended = master.end_of("nowhere")
    assert "/nowhere/bin/python cannot be started: No such file or directory" in ended.error
    assert ended.exit_codes == {0: None, 1: None}
    assert "nowhere" not in master.started


def test_interpreter_without_torch_is_told_what_is_missing(
    master: FakeMaster, tmp_path: Path
) -> None:
    torch = "raise ImportError('libtorch.so is damaged')"
    python = make_interpreter(tmp_path / "env", torch=torch)
    master.order(StartGang(plan=make_plan("torchless", [], python=python)))
    ended = master.end_of("torchless")
    assert ended.error_is_final
    assert ended.error.startswith(
        f"the interpreter {python} cannot run ranks: ImportError: libtorch.so is damaged; "
        f"install det_jupyter there: {python} -m pip install det-jupyter=="
    )


def test_interpreter_without_our_dependencies_is_told_what_is_missing(
    master: FakeMaster, tmp_path: Path
) -> None:
    python = make_interpreter(tmp_path / "env", borrows=False)
    master.order(StartGang(plan=make_plan("bare", [], python=python)))
    error = master.end_of("bare").error
    assert f"{python} cannot run ranks: ModuleNotFoundError: No module named 'pydantic'" in error


def test_torch_with_cuda_is_given_gpus(master: FakeMaster, tmp_path: Path) -> None:
    python = make_interpreter(tmp_path / "env", torch=torch_built_for("12.6"))
    started = master.begin(make_plan("cuda-build", [], python=python, slots=GPUS))
    assert started.note == "forked from the zygote"
    assert master.end_of("cuda-build").exit_codes == {0: 0, 1: 0}


def test_zygote_killed_while_it_loads_torch_is_worth_another_try(
    agent: AgentProcess, master: FakeMaster, tmp_path: Path
) -> None:
    python = make_interpreter(tmp_path / "env", torch="import time; time.sleep(3600)")
    master.order(StartGang(plan=make_plan("oom", [], python=python)))
    zygote = wait_until(
        lambda: next((z for z in agent.zygotes() if z.cmdline()[:1] == [python]), None),
        "its zygote is there",
    )
    zygote.kill()
    ended = master.end_of("oom")
    assert ended.error == (
        f"the fork server of {python} was killed by signal 9 while it loaded torch; the machine "
        "may be out of memory"
    )
    assert not ended.error_is_final


def test_gang_killed_while_its_zygote_warms_up_has_no_ranks(
    master: FakeMaster, tmp_path: Path
) -> None:
    torch = f"import time; time.sleep(1)\n{torch_built_for(None)}"
    python = make_interpreter(tmp_path / "env", torch=torch)
    master.order(StartGang(plan=make_plan("hasty", FOREVER, python=python)))
    ended = master.kill("hasty")
    assert (ended.killed, ended.exit_codes) == (True, {0: None, 1: None})
    assert "hasty" not in master.started


@pytest.mark.usefixtures("light_torch")
def test_ranks_are_started_afresh_where_the_zygote_has_a_second_thread(tmp_path: Path) -> None:
    python = make_interpreter(tmp_path / "env")
    note = tmp_path / "facts"
    acts = {
        "0": [["tell", str(note)], ["journal", 2], ["print", "hello"], *FOREVER],
        "1": [["tell", str(note)], *FOREVER],
    }
    kernel = Path(python).parents[1] / "share" / "det_jupyter" / "kernels" / "det-worker"
    variables = {"DET_TEST_SECOND_THREAD": "1", "DET_JUPYTER_CPU_SLOTS": "1"}
    with agent_with_master(tmp_path / "home", variables) as (agent, master):
        started = master.begin(make_plan("afresh", acts, python=python))
        assert started.note.startswith("started afresh: the zygote has 2 threads: ")
        facts = [facts_of(note, rank) for rank in (0, 1)]
        for rank, fact in enumerate(facts):
            assert fact["pid"] == fact["group"] == started.ranks[rank].pid
            assert fact["parent"] == agent.process.pid
            assert fact["python"] == python
            assert fact["place"]["num_threads"] == len(os.sched_getaffinity(0))
        assert_only_the_ranks_can_meet(facts)
        wait_until(lambda: master.text("afresh", "output-0"), "rank 0 has printed")
        os.kill(started.ranks[1].pid, signal.SIGTERM)
        ended = master.end_of("afresh")
        assert (ended.exit_codes, ended.first_failed) == ({0: -9, 1: -15}, 1)
        assert master.text("afresh", "output-0") == "hello\n"
        assert master.text("afresh", "journal-0").count("\n") == 2

        spec = (kernel / "kernel.json").read_text()
        (kernel / "kernel.json").write_text("{")
        master.order(StartGang(plan=make_plan("surprise", FOREVER, python=python)))
        ended = master.end_of("surprise")
        assert ended.error.startswith("the agent could not run the ranks: JSONDecodeError: ")
        assert not ended.error_is_final
        assert "Traceback" in agent.log.read_text()
        (kernel / "kernel.json").write_text(spec)

        started = master.begin(make_plan("orphans", FOREVER, python=python, slots=1))
        agent.crash()
        wait_until_gone(*(rank.pid for rank in started.ranks))
