"""Records the session that the site's JupyterLite plays: docs/decisions/0135.

    python -m tests.docs_recording [FILE]

Four experiments on five agents with two CPU slots each, which stand for computers: a search, a
straggler, a hang that ends, and a trial over two agents. Their documents are followed as a tab
follows them. It takes three minutes of a computer that is idle otherwise. The form of the file is
IRecording of labextension/src/lab/recorded/recording.ts.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import socket
import sys
import tempfile
import time
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from det_jupyter.client import Client, Experiment
from det_jupyter.contract.documents.patches import Document, Operation, changes
from det_jupyter.front.verbs.html_page import make_page
from tests import bottlenecks
from tests.nodes import Node, running_nodes
from tests.processes import det_home
from tests.reader_pages import Page, ReaderOfMaster
from tests.trials import TRIAL_SOURCE, capture_trial, create, small_config, wait_for_steps

ROOT = Path(__file__).parents[1]
RECORDING = ROOT / "docs/site/try/recording.json.gz"
NODES = ("node-b", "node-c", "node-d", "node-e")
LENGTH_S, RELEASE_S = 120.0, 70.0
INTERVAL_S = 1.0  # between versions of a document that are kept
SHARED = {"experiments": {}, "cluster": {}, "trials": {}, "models": {}, "usage": {"period_s": 2}}
_DATA = re.compile(r'<script type="application/json" id="det-data">(.*?)</script>', re.DOTALL)

PAUSE = "        time.sleep(self.pause_s)\n"
COMPUTES = '        time.sleep(self.hparam("compute_s", 0))\n'
SAYS = '        if batch_idx % 20 == 0: print(f"batch {batch_idx}")\n'
SEARCHED = (
    TRIAL_SOURCE.replace("lr=0.01", 'lr=context.get_hparam("lr")')
    .replace("16)", 'context.get_hparam("width"))')
    .replace("nn.Linear(16,", 'nn.Linear(context.get_hparam("width"),')
    .replace(PAUSE, PAUSE + SAYS)
)
STALLS = """\
        if batch_idx == 120 and self.context.distributed.rank == 1:
            open({fifo!r})  # blocks until another process opens it
"""


def submitted(client: Client, scratch: Path, fifo: Path) -> dict[str, Experiment]:
    """Submit the experiments, each when the one before has its slots; return them by name."""
    made: dict[str, Experiment] = {}

    def add(name: str, about: str, source: str, **keys: Any) -> None:
        config = small_config(name=name, description=about, **keys)
        config.setdefault("checkpoint_storage", {"save_trial_latest": 100})
        file = scratch / f"{name.partition(' ')[0]}.py"  # tracebacks have its lines
        file.write_text(source)
        capsule = capture_trial(client, config["entrypoint"], source, file=str(file))
        made[name] = create(client, config, capsule)
        wait_for_steps(made[name], 1)

    def single(batches: int) -> dict[str, Any]:
        return {"name": "single", "metric": "error", "max_length": {"batches": batches}}

    says = TRIAL_SOURCE.replace(PAUSE, PAUSE + SAYS)
    add(
        "several computers",
        "Four ranks on two computers. Logs can be filtered by agent; Timings has the network.",
        says,
        hyperparameters={"global_batch_size": 32, "pause_s": 0.14},
        searcher=single(600),
        resources={"slots_per_trial": 4},
    )
    add(
        "hang",
        "Rank 1 stands still in batch 120: who waits for whom is said after ten seconds.",
        says.replace(PAUSE, PAUSE + STALLS.format(fifo=str(fifo))),
        hyperparameters={"global_batch_size": 16, "pause_s": 0.12},
        searcher=single(300),
        hang={"after_s": 10},
    )
    add(
        "straggler",
        "Rank 1 is slower than rank 0: Timings says whose time it is, and what to do.",
        bottlenecks.SOURCE.replace(COMPUTES, COMPUTES + SAYS),
        entrypoint="MadeTrial",
        hyperparameters={
            "global_batch_size": 64, "compute_s": 0.03, "slow_rank": 1, "slow_sleep_s": 0.1,
        },
        searcher=single(600),
        min_validation_period={"batches": 100},
        checkpoint_policy="none",
    )  # fmt: skip
    add(
        "search",
        "Twelve trials, two at a time; the better ones are promoted to the next rung.",
        SEARCHED,
        hyperparameters={
            "global_batch_size": 16,
            "pause_s": 0.2,
            "lr": {"type": "log", "base": 10, "minval": -4, "maxval": -1.3},
            "width": {"type": "int", "minval": 4, "maxval": 64},
        },
        searcher={
            "name": "async_halving", "metric": "error", "max_length": {"batches": 270},
            "num_rungs": 3, "divisor": 3, "max_trials": 12, "max_concurrent_trials": 2,
        },
        min_validation_period={"batches": 10},
        resources={"slots_per_trial": 1},
    )  # fmt: skip
    return made


@dataclass
class Stream:
    """A document, and its versions so far; `part` is the only part of it that is kept."""

    document: str
    args: dict[str, Any]
    part: tuple[str, str] | None = None
    versions: list[tuple[float, list[Operation]]] = field(default_factory=list)
    _last: Document = field(default_factory=dict)
    _taken: int = 0

    def take(self, at: float, version: int, document: Document) -> None:
        """Keep what a version has changed."""
        is_soon = bool(self.versions) and at - self.versions[-1][0] < INTERVAL_S
        if version == self._taken or is_soon:
            return
        self._taken = version
        if self.part is not None:
            outer, inner = self.part
            document = {inner: document[outer][inner]}
        if made := changes(self._last, document):
            self.versions.append((round(at, 2), made))
            self._last = document

    def as_json(self) -> dict[str, Any]:
        return {"document": self.document, "args": self.args, "versions": self.versions}


def recorded(page: Page, experiments: dict[str, Experiment], fifo: Path) -> dict[str, Any]:
    """Follow all documents for `LENGTH_S`; the hang is let go on meanwhile."""
    streams: dict[int, Stream] = {}
    numbers = count(1)
    search = experiments["search"]
    chosen: set[int] = set()

    def follow(stream: Stream, name: str) -> None:
        number = next(numbers)
        streams[number] = stream
        page.follow(number, name, **stream.args)

    for name, args in SHARED.items():
        follow(Stream(name, args), name)
    for each in experiments.values():
        follow(Stream("experiment", {"experiment_id": each.id, "chosen": None}), "experiment")
    page.until(lambda: set(streams) <= set(page.documents))
    began_at, start = time.time(), time.monotonic()
    while (at := time.monotonic() - start) < LENGTH_S:
        for number, stream in streams.items():
            if number in page.documents:
                stream.take(at, page.versions[number], page.documents[number])
        for trial in {trial.id for trial in search.view.trials} - chosen:
            chosen.add(trial)
            args = {"experiment_id": search.id, "chosen": trial}
            follow(Stream("chosen", args, ("search", "chosen")), "experiment")
        if at > RELEASE_S and fifo.exists():
            fifo.open("w").close()
            fifo.unlink()
        page.drain(0.3)
    return {
        "began_at": began_at,
        "length_s": LENGTH_S,
        "opened": search.id,
        "streams": [stream.as_json() for stream in streams.values()],
    }


def answers(client: Client, experiment_id: int) -> dict[str, Any]:
    """Return what the page of `det e export-html` answers."""
    found = _DATA.search(make_page(client, experiment_id))
    assert found is not None
    data = json.loads(found[1])
    return {name: data[name] for name in ("config", "checkpoints", "logs", "series")}


def lean(value: Any) -> Any:
    """Return JSON with fewer digits: milliseconds of times, six digits of other numbers.

    Agents stand for computers: each has its own name as that of its computer.
    """
    match value:
        case {"hostname": _, "id": name, "facts": facts}:
            kept = [fact for fact in facts if not fact.startswith("computer ")]
            note = re.sub(r"(, )?on \S+$", "", value["note"])
            own = value | {"hostname": name, "facts": kept, "note": note}
            return {name: lean(part) for name, part in own.items()}
        case dict():
            return {name: lean(part) for name, part in value.items()}
        case list() | tuple():
            return [lean(part) for part in value]
        case float():
            return round(value, 3) if abs(value) > 1e5 else float(f"{value:.6g}")
        case _:
            return value


def anonymous(text: str, scratch: Path) -> str:
    """Return a text without names of this computer and its folders."""
    names = {
        str(scratch): "/home/ada",
        str(ROOT): "/home/ada/det_jupyter",
        sys.prefix: "/home/ada/venv",
        os.path.realpath(sys.prefix): "/home/ada/venv",
        sys.base_prefix: "/usr",
        socket.gethostname(): "node-a",
    }
    for name, other in names.items():
        text = text.replace(name, other)
    return text


def main(target: Path) -> None:
    """Run the experiments, and write the recording."""
    with tempfile.TemporaryDirectory(prefix="d-") as folder:
        scratch = Path(folder)
        fifo = scratch / "answer.fifo"
        os.mkfifo(fifo)
        with det_home(scratch / "home", {"DET_JUPYTER_CPU_SLOTS": "2"}) as home:
            client = home.client()
            nodes = [Node(client.add_agent(name, "127.0.0.1"), scratch / name) for name in NODES]
            with running_nodes(home.client(), nodes):
                experiments = submitted(client, scratch, fifo)
                with ReaderOfMaster(home).page(may_write=False) as page:
                    recording = recorded(page, experiments, fifo)
                for each in experiments.values():
                    each.kill()
                    each.wait()
                ids = [each.id for each in experiments.values()]
                recording["pages"] = {each: answers(client, each) for each in ids}
            client.session.close()
        text = anonymous(json.dumps(lean(recording), separators=(",", ":")), scratch)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(gzip.compress(text.encode(), mtime=0))
    print(f"{target}: {target.stat().st_size} bytes, {len(text)} without compression")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else RECORDING)
