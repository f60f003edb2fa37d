"""The speed of a console on a rank: on this computer, and through the tunnel of another agent.

    python -m tests.benchmarks.consoles [--rounds 20] [--executes 300]

The other agent also runs on this computer, and reaches the master over TLS on the loopback
interface, so the network adds nothing. Both trials train meanwhile (50 ms per batch, mostly
asleep).

    attach      time for a new connection, code, and its result (`rank.execute`)
    execute     time for code and its result on an open connection
    stacks      time for the stacks of both ranks
    output      MB/s of output that a cell prints

Measurements of both kinds take turns. Prints a table and last one JSON line.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from jupyter_client.blocking.client import BlockingKernelClient

from det_jupyter.client import Client, Experiment
from det_jupyter.client.handles.rank import Rank
from tests.benchmarks.quick import arguments
from tests.nodes import Node
from tests.processes import det_home, wait_until
from tests.trials import slow, submit

QUICK = "--rounds 2 --executes 3"
KEYS = {
    "attach_here_ms",
    "attach_elsewhere_ms",
    "execute_here_ms",
    "execute_elsewhere_ms",
    "stacks_here_ms",
    "stacks_elsewhere_ms",
    "output_here_mb_per_s",
    "output_elsewhere_mb_per_s",
}  # keys of the JSON in the last line

_LONG = {"searcher": {"name": "single", "metric": "error", "max_length": {"batches": 100_000}}}
_PRINTED_BYTES = 20_000_000
KINDS = ("here", "elsewhere")


def timed(run: Callable[[], object]) -> float:
    """Return the seconds that a call takes."""
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def execute(kernel: BlockingKernelClient) -> None:
    """Execute code on an open connection, and wait for its result."""
    number = kernel.execute("steps_completed", store_history=False)
    is_idle = False
    while not is_idle:
        message = kernel.get_iopub_msg(timeout=10)
        is_ours = message["parent_header"].get("msg_id") == number
        is_idle = is_ours and message["content"].get("execution_state") == "idle"
    kernel.get_shell_msg(timeout=10)


def print_much(rank: Rank) -> None:
    """Make the rank print much, and receive it."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        rank.execute(
            f"for _ in range({_PRINTED_BYTES // 100_000}): print('x' * 99_999)", timeout=60
        )
    if len(printed.getvalue()) != _PRINTED_BYTES:
        raise RuntimeError(f"{len(printed.getvalue())} bytes arrived")


def reachable(client: Client) -> Experiment:
    """Submit a trial of two ranks; return it when the kernels of both can be reached."""
    experiment = submit(client, slow(0.05, **_LONG))
    wait_until(lambda: experiment.view.trials[0].steps_completed > 3, "it trains")
    for rank in experiment.trials[0].ranks:
        wait_until(Path(rank.connection_file).exists, "the rank can be reached")
    return experiment


@contextmanager
def attached(rank: Rank) -> Iterator[BlockingKernelClient]:
    """Connect to a rank."""
    kernel = BlockingKernelClient()
    kernel.load_connection_file(rank.connection_file)
    kernel.start_channels(stdin=False, hb=False)
    kernel.wait_for_ready(timeout=10)
    yield kernel
    kernel.stop_channels()


def measure(rounds: int, executes: int) -> dict[str, dict[str, list[float]]]:
    """Return the times of all rounds, by measurement and kind."""
    found: dict[str, dict[str, list[float]]] = {
        name: {kind: [] for kind in KINDS} for name in ("attach", "execute", "stacks", "output")
    }
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        home = stack.enter_context(det_home(folder / "home", {"DET_JUPYTER_CPU_SLOTS": "2"}))
        client = home.client()
        stack.callback(client.session.close)
        here = reachable(client)
        node = Node(client.add_agent("b", "127.0.0.1"), folder / "b")
        node.start()
        stack.callback(node.end)
        node.wait_until_connected(client)
        elsewhere = reachable(client)  # on the other agent, as the slots here are taken
        trials = {"here": here.trials[0], "elsewhere": elsewhere.trials[0]}
        ranks = {kind: trial.ranks[1] for kind, trial in trials.items()}
        if [rank.view.is_remote for rank in ranks.values()] != [False, True]:
            raise RuntimeError("the trials are not where they should be")
        for _ in range(rounds):
            for kind, rank in ranks.items():
                found["attach"][kind].append(timed(partial(rank.execute, "1")))
                found["stacks"][kind].append(timed(trials[kind].stacks))
        kernels = {kind: stack.enter_context(attached(rank)) for kind, rank in ranks.items()}
        for _ in range(executes):
            for kind, kernel in kernels.items():
                found["execute"][kind].append(timed(partial(execute, kernel)))
        for _ in range(3):
            for kind, rank in ranks.items():
                seconds = timed(partial(print_much, rank))
                found["output"][kind].append(_PRINTED_BYTES / 1e6 / seconds)
        for experiment in (here, elsewhere):
            experiment.kill()
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--executes", type=int, default=300)
    options = parser.parse_args(arguments(QUICK))
    found = measure(options.rounds, options.executes)
    result: dict[str, float] = {}
    print(f"{'console on a rank':28} {'here':>16} {'elsewhere':>16}   median (p95)")
    for name, by_kind in found.items():
        unit = "MB/s" if name == "output" else "ms"
        cells = []
        for kind in KINDS:
            values = sorted(v if name == "output" else 1000 * v for v in by_kind[kind])
            median, late = statistics.median(values), values[int(0.95 * (len(values) - 1))]
            cells.append(f"{median:8.2f} ({late:.1f})")
            result[f"{name}_{kind}_{unit.replace('/', '_per_').lower()}"] = round(median, 2)
        print(f"{f'{name}, {unit}':28} {cells[0]:>16} {cells[1]:>16}")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
