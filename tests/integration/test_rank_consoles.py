"""A real Jupyter Server attaches consoles to a gang of two; its notebooks' kernels are known."""

from __future__ import annotations

import json
import os
import signal
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest

from det_jupyter.agent.devices.identify import Notebooks, identify
from det_jupyter.client import Client, Experiment
from det_jupyter.client.answers.answering import answer
from det_jupyter.contract.messages import DeviceProcess
from det_jupyter.front.jupyter_server.rank_kernels import spec_of
from tests.integration.console_support import Server, jupyter_server
from tests.processes import DetHome, wait_until
from tests.trials import LONG, slow, submit, wait_for_steps


@pytest.fixture(scope="module")
def home(shared_home: DetHome) -> DetHome:
    """Return the private det_jupyter with 2 slots."""
    return shared_home


@pytest.fixture(scope="module")
def client(home: DetHome) -> Iterator[Client]:
    """Return a client of the private master."""
    client = home.client()
    yield client
    client.session.close()


@pytest.fixture(scope="module")
def server(home: DetHome, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Run a real Jupyter Server."""
    with jupyter_server(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture(scope="module")
def training(client: Client) -> Iterator[Experiment]:
    """Return an experiment whose trial trains on two ranks for as long as the tests take."""
    experiment = submit(client, slow(0.05, searcher=LONG))
    wait_for_steps(experiment, 3)
    yield experiment
    if not experiment.view.state.is_terminal:
        experiment.kill()


def still_trains(experiment: Experiment) -> bool:
    """Return whether the same processes take further steps."""
    trial = experiment.trials[0]
    before = trial.view
    wait_for_steps(experiment, before.steps_completed + 3)
    pids = [rank.pid for rank in before.allocation.ranks] if before.allocation else []
    return before.restarts == 0 and len(pids) == 2 and all(map(psutil.pid_exists, pids))


def trial_id(experiment: Experiment) -> int:
    """Return the number of its only trial."""
    return int(experiment.trials[0].id)


def test_a_console_is_attached_while_the_rank_trains_and_reads_its_loss(
    server: Server, training: Experiment
) -> None:
    trial = trial_id(training)
    kernel = server.attach(trial, 1)
    assert float(kernel.run("float(loss)")) > 0
    assert kernel.run("rank, world_size") == "(1, 2)"
    first, second = (int(kernel.run("steps_completed")) for _ in range(2))
    assert second >= first > 0
    model = server.http.get(kernel.path).json()
    assert model["execution_state"] in ("idle", "busy")
    assert still_trains(training)


def test_shutting_down_detaches_and_the_rank_can_be_attached_to_again(
    server: Server, training: Experiment
) -> None:
    trial = trial_id(training)
    kernel, other = server.attach(trial, 0), server.attach(trial, 0)
    assert kernel.run("rank") == other.run("rank") == "0"
    assert server.http.delete(kernel.path).status_code == 204
    assert server.http.get(kernel.path).status_code == 404
    assert other.run("1 + 1") == "2"  # its links and the rank's sockets are where they were
    assert server.attach(trial, 0).run("rank") == "0"
    assert still_trains(training)


def test_a_restart_attaches_again(server: Server, training: Experiment) -> None:
    kernel = server.attach(trial_id(training), 0)
    kernel.run("mine = 3")
    assert server.http.post(f"{kernel.path}/restart").status_code == 200
    assert kernel.run("mine") == "3"  # the same kernel: it was not restarted
    assert still_trains(training)


def test_an_interrupt_ends_the_cell_and_not_the_training(
    server: Server, training: Experiment
) -> None:
    kernel = server.attach(trial_id(training), 0)
    with closing(kernel.connect()) as line:
        number = kernel.ask(line, "import time\nprint('on')\nwhile True: time.sleep(0.01)")
        kernel.wait_for_output(line, number)
        assert server.http.post(f"{kernel.path}/interrupt").status_code == 204
        assert kernel.result(line, number) == "KeyboardInterrupt"
    assert server.http.post(f"{kernel.path}/interrupt").status_code == 204  # nothing runs: nothing
    assert kernel.run("1 + 1") == "2"
    assert still_trains(training)


def test_shutting_down_does_not_end_what_another_console_runs(
    server: Server, training: Experiment
) -> None:
    trial = trial_id(training)
    kernel, other = server.attach(trial, 0), server.attach(trial, 0)
    with closing(other.connect()) as line:
        number = other.ask(line, "import time\nprint('on')\ntime.sleep(1)\n'done'")
        other.wait_for_output(line, number)
        assert server.http.delete(kernel.path).status_code == 204
        assert other.result(line, number) == "'done'"


def test_what_an_attachment_leaves_is_private_and_goes_with_it(
    server: Server, training: Experiment
) -> None:
    kernel = server.attach(trial_id(training), 1)
    file = server.runtime / f"kernel-{kernel.id}.json"
    prefix = Path(json.loads(file.read_text())["ip"])
    links = list(prefix.parent.glob(f"{prefix.name}-*"))
    assert len(links) == 5
    assert all(link.is_symlink() and link.resolve().is_socket() for link in links)
    assert stat.S_IMODE(prefix.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    server.http.delete(kernel.path)
    assert not file.exists()
    assert not any(link.is_symlink() for link in links)
    assert sum(path.is_socket() for path in prefix.parent.iterdir()) >= 10  # of two ranks


def test_a_page_gets_the_stacks_of_all_ranks_or_of_one(
    client: Client, training: Experiment
) -> None:
    asked = {"type": "stacks", "trial_id": trial_id(training)}
    said = answer(client, training.id, asked)
    assert said["error"] == ""
    assert [one["rank"] for one in said["stacks"]] == [0, 1]
    assert all("in train_batch" in one["stack"] or one["error"] == "" for one in said["stacks"])
    assert [one["rank"] for one in answer(client, 0, {**asked, "rank": 1})["stacks"]] == [1]
    assert "expected" in answer(client, 0, {**asked, "trial_id": "<b>"})["error"]


def test_a_rank_that_hangs_is_said_beside_the_stacks_of_the_others(
    client: Client, training: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("det_jupyter.client.handles.rank._STACK_TIMEOUT_S", 2.0)
    trial = trial_id(training)
    pid = training.trials[0].ranks[1].view.pid
    os.kill(pid, signal.SIGSTOP)  # as with a lock of the interpreter that is never released

    def stacks() -> Any:  # a busy computer may leave rank 0 no time either
        both = answer(client, 0, {"type": "stacks", "trial_id": trial})["stacks"]
        return both if both[0]["stack"] else None

    try:
        first, second = wait_until(stacks, "rank 0 answers")
    finally:
        os.kill(pid, signal.SIGCONT)
    assert first["error"] == ""
    assert second["error"].startswith(f"rank 1 of trial {trial} does not answer")


def test_only_names_of_ranks_are_ours() -> None:
    spec = spec_of("det-trial-12-rank-3")
    assert spec is not None
    assert spec.display_name == "Trial 12, rank 3"
    for name in ("python3", "det-trial-x-rank-3", "det-trial-1-rank-3-x", "a-det-trial-1-rank-3"):
        assert spec_of(name) is None


def test_ranks_are_in_no_list_of_kernels_for_notebooks(server: Server) -> None:
    listed = server.http.get("api/kernelspecs").json()["kernelspecs"]
    assert "python3" in listed
    assert not [name for name in listed if name.startswith("det-")]


def kernel_process(kernel_id: str) -> psutil.Process | None:
    """Return the process of a notebook's kernel."""
    for process in psutil.process_iter(["cmdline"]):
        if any(f"kernel-{kernel_id}.json" in word for word in process.info["cmdline"] or ()):
            return process
    return None


def test_the_kernel_of_a_notebook_is_known_with_its_notebook(server: Server) -> None:
    """What an agent reports of it where it uses a GPU."""
    kernel = {"name": "python3"}
    asked = {"path": "deep.ipynb", "name": "deep.ipynb", "type": "notebook", "kernel": kernel}
    session = server.http.post("api/sessions", json=asked).json()
    kernel_id = session["kernel"]["id"]
    process = wait_until(lambda: kernel_process(kernel_id), "the kernel runs")
    notebooks = Notebooks(server.runtime)

    def seen(now: float) -> DeviceProcess | None:
        return identify(
            process.pid,
            memory_bytes=7,
            notebook_of=lambda kernel, pid: notebooks.notebook_of(kernel, pid, now),
        )

    who = seen(now=0.0)
    assert who is not None
    assert who.notebook == str(server.runtime.parent / "deep.ipynb")
    assert (who.kernel_id, who.user) == (kernel_id, psutil.Process().username())
    assert "ipykernel" in who.command
    assert server.http.headers["Authorization"].split()[1] not in who.model_dump_json()
    path = f"api/sessions/{session['id']}"
    server.http.patch(path, json={"path": "renamed.ipynb"})
    later = [seen(now) for now in (29.0, 30.0)]
    assert [Path(who.notebook or "").name for who in later if who] == [
        "deep.ipynb",
        "renamed.ipynb",
    ]
    assert server.http.delete(path).status_code == 204


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("det-trial-999-rank-0", "999"),
        ("det-trial-{trial}-rank-7", "has no rank 7: its ranks are 0 to 1"),
    ],
)
def test_what_cannot_be_attached_to_is_refused_with_a_sentence(
    server: Server, training: Experiment, name: str, said: str
) -> None:
    named = name.format(trial=trial_id(training))
    refused = server.http.post("api/kernels", json={"name": named})
    assert refused.status_code == 409, refused.text
    assert said in refused.json()["message"]
    kernels = server.http.get("api/kernels").json()
    assert named not in [kernel["name"] for kernel in kernels]


def test_a_session_on_an_attachment_is_what_a_console_uses(
    server: Server, training: Experiment
) -> None:
    kernel = server.attach(trial_id(training), 1)
    asked = {"path": "console-1", "type": "console", "name": "", "kernel": {"id": kernel.id}}
    session = server.http.post("api/sessions", json=asked)
    assert session.status_code == 201
    assert session.json()["kernel"]["id"] == kernel.id
    assert server.http.delete(f"api/sessions/{session.json()['id']}").status_code == 204
    assert server.http.get(kernel.path).status_code == 404
    assert still_trains(training)


def test_a_rank_that_ends_is_dead_soon_and_the_log_says_why(
    server: Server, client: Client, training: Experiment
) -> None:
    kernel = server.attach(trial_id(training), 0)
    with closing(kernel.connect()) as line:
        training.kill()
        while True:
            content = json.loads(line.recv())["content"]
            if (state := content.get("execution_state")) in ("dead", "restarting"):
                break
    assert state == "dead"  # at once: nothing was started in its place
    assert server.http.get(kernel.path).status_code == 404
    trial = trial_id(training)
    wait_until(lambda: training.view.state.is_terminal, "the experiment has ended")
    assert f"rank 0 of trial {trial} has ended: the trial " in server.log.read_text()
    refused = server.http.post("api/kernels", json={"name": f"det-trial-{trial}-rank-0"})
    assert refused.status_code == 409
    assert f"rank 0 of trial {trial} does not run now: " in refused.json()["message"]


def test_the_training_goes_on_when_the_server_stops(server: Server, client: Client) -> None:
    """The last: it stops the server of all."""
    experiment = submit(client, slow(0.05, searcher=LONG))
    wait_for_steps(experiment, 1)
    assert server.attach(trial_id(experiment), 0).run("rank") == "0"
    refused = server.http.post("api/kernels", json={"name": "det-trial-999-rank-0"})
    assert refused.status_code == 409  # which does not keep the server from stopping
    server.stop()
    assert still_trains(experiment)
    experiment.kill()
