"""The cost of the reader: the first version of a long list, and its CPU time under load.

    python -m tests.benchmarks.reader [EXPERIMENTS] [TRIALS_OF_EACH]

A real master has 1,000 experiments of 10 trials and one agent of 8 GPUs, which stands in for ranks
and devices. Eight trials train; each of 100 reports a second contains the progress and the loss of
one of them. Five tabs follow experiments, slots, usage and a page each. The reader's CPU time is
in percent of a core.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil

from det_jupyter.client import Client
from det_jupyter.connection import Session
from det_jupyter.contract.host import paths
from det_jupyter.contract.messages import (
    PROTOCOL,
    GangStarted,
    Kill,
    MasterInfo,
    RankProcess,
    RegisterAgent,
    RunReport,
    SlotView,
    SystemSample,
    SystemSampled,
)
from det_jupyter.contract.run.journal import (
    BatchMetrics,
    FirstStep,
    Progress,
    RankStarted,
    to_line,
)
from tests.integration.master_support import (
    AGENT,
    FakeAgent,
    make_request,
    make_text_chunk,
    master_process,
)
from tests.processes import DetHome
from tests.reader_pages import Page, ReaderOfMaster

SLOTS = 8
UPDATES_PER_S = 100
HZ = 10
SECONDS = 10.0
LIVING = 20  # experiments that are not over


class Gpus(FakeAgent):
    """An agent of 8 GPUs, each with a trial of one rank."""

    def __init__(self, info: MasterInfo) -> None:
        super().__init__(info)
        self.steps: dict[str, int] = {}
        self.offsets: dict[str, int] = {}

    def register(self, runs: list[RunReport] | None = None) -> dict[str, dict[str, int]]:
        """Register with GPUs."""
        slots = [
            SlotView(
                id=i, kind="cuda", index=i, name="H100", uuid=f"GPU-{i}", memory_bytes=80 << 30
            )
            for i in range(SLOTS)
        ]
        said = RegisterAgent(
            protocol=PROTOCOL, version="0", session=self.session, hostname=AGENT, pid=1,
            slots=slots, runs=[],
        )  # fmt: skip
        self.http.post(f"/agents/{AGENT}/register", json=said.model_dump(mode="json"))
        for target in (self._listen, self._live):
            threading.Thread(target=target, daemon=True).start()
        return {}

    def start_gangs(self, num: int) -> None:
        """Report that the ranks of `num` gangs have started, and have made a step."""
        while len(self.steps) < num:
            command = self.next_command()
            if command["kind"] != "start_gang":
                continue
            run = command["plan"]["allocation_id"]
            rank = RankProcess(rank=0, pid=10, connection_file="c", output_file="o")
            self.report(GangStarted(allocation_id=run, at=time.time(), ranks=[rank]))
            self.steps[run] = self.offsets[run] = 0
            self.write(run, RankStarted(at=1.0, pid=10, backend="nccl", device="cuda:0"),
                       FirstStep(at=time.time(), steps_completed=1))  # fmt: skip

    def write(self, run: str, *records: Any) -> None:
        """Send records of a rank."""
        text = "".join(map(to_line, records))
        self.report(make_text_chunk(text, stream="journal-0", offset=self.offsets[run], run=run))
        self.offsets[run] += len(text.encode())

    def train(self, run: str) -> None:
        """Report the progress of a trial."""
        step = self.steps[run] = self.steps[run] + 1
        at = time.time()
        metrics = BatchMetrics(at=at, first=step, values={"loss": [1 / step]})
        self.write(run, metrics, Progress(at=at, steps_completed=step, fraction=step / 1e4))

    def sample(self, hz: int) -> None:
        """Send the samples of a second, as the agent's sampler does."""
        now = time.time()
        samples = [
            SystemSample(
                at=now - 1 + i / hz,
                values={"host": {"cpu_util_simple": 50.0 + i}}
                | {f"gpu:GPU-{n}": {"gpu_util": 90.0 + i / 3, "gpu_free_memory": 1e10 + i}
                   for n in range(SLOTS)},
            )
            for i in range(hz)
        ]  # fmt: skip
        self.report(SystemSampled(samples=samples))


@contextmanager
def busy_master(num_experiments: int, num_trials: int) -> Iterator[Gpus]:
    """Run a master with this many experiments, a few of which are not over."""
    home = Path(tempfile.mkdtemp(prefix="det-reader-"))
    os.environ[paths.HOME_VARIABLE] = str(home)
    with master_process(home) as master:
        info = master.start()
        agent = Gpus(info)
        agent.register()  # first, as submissions wait for an agent
        client = Client(Session(info))
        config = {
            "hyperparameters": {"lr": {"type": "log", "base": 10, "minval": -4, "maxval": -1}},
            "searcher": {"name": "random", "metric": "error", "max_trials": num_trials,
                         "max_length": {"batches": 100_000}},
            "resources": {"slots_per_trial": 1}, "labels": ["week 7", "digits"],
            "description": "What a person writes about it in a line.",
        }  # fmt: skip
        started = time.perf_counter()
        for number in range(num_experiments):
            view = client.create(make_request(name=f"experiment {number}", **config))
            if number >= LIVING:
                client.change(Kill(experiment_id=view.id))
        print(f"{num_experiments} experiments made in {time.perf_counter() - started:.0f} s")
        agent.start_gangs(SLOTS)
        yield agent
        agent.close()
        client.session.close()


def measure_first(reader: ReaderOfMaster, what: str) -> None:
    """Print the time and the bytes of the first version."""
    with reader.page() as page:
        started, before = time.perf_counter(), page.num_bytes
        page.follow(1, "experiments")
        rows = page.last(1)["rows"]
        took = time.perf_counter() - started
        print(f"first experiments, {what:12} {took * 1000:6.0f} ms  "
              f"{page.num_bytes - before:9,} bytes, {len(rows)} rows")  # fmt: skip


def measure_load(
    reader: ReaderOfMaster, agent: Gpus, what: str, documents: list[str], *, updates: int, hz: int
) -> dict[str, Any]:
    """Print the reader's CPU time under load, and what a tab receives."""
    process = psutil.Process(reader.process.pid)
    master = psutil.Process(json.loads(paths.master_file().read_text())["pid"])
    with ExitStack() as stack:
        pages = [stack.enter_context(reader.page()) for _ in range(5)]
        stopped = threading.Event()
        looking = []
        for page in pages:
            for number, name in enumerate(documents, start=1):
                args: dict[str, dict[str, Any]] = {
                    "experiment": {"experiment_id": 1}, "usage": {"period_s": 1 / (hz or 1)},
                }  # fmt: skip
                page.follow(number, name, **args.get(name, {}))
            looking.append(threading.Thread(target=read, args=(page, stopped)))
        for thread in looking:
            thread.start()
        time.sleep(3)
        num_before = [sum(map(len, page.frames.values())) for page in pages]
        bytes_before = pages[0].num_bytes
        of_reader, of_master = sum(process.cpu_times()[:2]), sum(master.cpu_times()[:2])
        started = time.perf_counter()
        done = report(agent, updates, hz)
        took = time.perf_counter() - started
        of_reader = (sum(process.cpu_times()[:2]) - of_reader) / took * 100
        of_master = (sum(master.cpu_times()[:2]) - of_master) / took * 100
        num_frames = sum(map(len, pages[0].frames.values())) - num_before[0]
        rate = (pages[0].num_bytes - bytes_before) / took
        memory = process.memory_info().rss / 2**20
        stopped.set()
        for thread in looking:
            thread.join()
    print(
        f"{what:30} {done / took:4.0f} updates/s  reader {of_reader:5.1f} %  "
        f"master {of_master:5.1f} %  {num_frames / took:5.1f} patches/s and "
        f"{rate / 1000:7.1f} kB/s to a tab, {memory:.0f} MB"
    )
    return {
        "what": what,
        "reader": of_reader,
        "master": of_master,
        "patches_per_s": num_frames / took,
    }


def read(page: Page, stopped: threading.Event) -> None:
    """Read frames until stopped."""
    while not stopped.is_set():
        page.read(0.2)


def report(agent: Gpus, updates: int, hz: int) -> int:
    """Send reports for some seconds; return the number of updates."""
    runs = list(agent.steps)
    started = time.perf_counter()
    num = num_samples = 0
    while (now := time.perf_counter() - started) < SECONDS:
        if hz and now > num_samples:
            agent.sample(hz)
            num_samples += 1
        if num < now * updates:
            agent.train(runs[num % len(runs)])
            num += 1
        else:
            time.sleep(0.002)
    return num


def main() -> None:
    """Measure everything."""
    numbers = [int(word) for word in sys.argv[1:]]
    with busy_master(*(numbers or [1000, 10])) as agent:
        reader = ReaderOfMaster(DetHome(Path(os.environ[paths.HOME_VARIABLE])))
        measure_first(reader, "cold")
        measure_first(reader, "warm")
        loads = [
            measure_load(reader, agent, what, documents.split(), updates=updates, hz=hz)
            for what, documents, updates, hz in (
                ("nothing happens", "experiments cluster", 0, 0),
                ("list, slots, trials", "experiments cluster trials", UPDATES_PER_S, 0),
                ("a page", "experiments cluster experiment", UPDATES_PER_S, 0),
                ("usage", "cluster usage", 0, HZ),
                ("all of it", "experiments cluster trials experiment usage",
                 UPDATES_PER_S, HZ),
            )
        ]  # fmt: skip
        print(json.dumps({"reader": loads}))


if __name__ == "__main__":
    main()
