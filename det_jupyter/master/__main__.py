"""`python -m det_jupyter.master`: runs the user's master, or a command that starts or stops it.

`serve` is run at every `%load_ext`, when a master usually runs already. So it takes the lock
first, before it imports anything but the standard library; then it starts the agent, which takes
longest to be ready; then everything else. Before it opens a file or starts a thread, it forks the
process from which readers are forked.
"""

from __future__ import annotations

import argparse
import sys

from det_jupyter.contract.host import paths
from det_jupyter.contract.host.inheritance import start_clean
from det_jupyter.contract.host.locks import take_lock
from det_jupyter.engine import LocalEngine
from det_jupyter.errors import DetError

READER = "det_jupyter.reader.program:run"
_LOCK_S = 20.0  # how long another master may take to start or to exit


def main() -> int:
    """Run one command; return the exit status."""
    options = _parser().parse_args()
    if options.verb == "serve":
        try:
            return _serve(options)
        # About folders and files: the program that starts a master shows this output.
        except DetError as error:
            sys.exit(str(error))
    from det_jupyter.master.cli import run

    return run(options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m det_jupyter.master", description="The background process of det_jupyter."
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("start", help="start the master, unless one runs")
    verbs.add_parser(
        "restart", help="replace the master by one of this environment; running trials go on"
    )
    stop = verbs.add_parser("stop", help="end the master; running trials go on")
    stop.add_argument(
        "--everything", action="store_true", help="also kill agents and all that they run"
    )
    status = verbs.add_parser("status", help="print whether the master runs (exit status 0 or 3)")
    status.add_argument("--json", action="store_true", help="for programs")
    serve = verbs.add_parser("serve", help="run the master in the foreground")
    serve.add_argument("--no-agent", action="store_true", help="start no agents")
    return parser


def _serve(options: argparse.Namespace) -> int:
    start_clean()
    # If the lock is held but there is no master's file, a master is starting or exiting: wait.
    lock = take_lock(
        paths.master_lock(), timeout_s=_LOCK_S, should_give_up=paths.master_file().exists
    )
    if lock is None:
        return 0
    paths.master_file().unlink(missing_ok=True)  # left by a master that was killed
    engine = LocalEngine(_simulated_agents(), starts=not options.no_agent)
    engine.keep(connected=())
    from det_jupyter.master.background.reader_starter import reader_starter
    from det_jupyter.master.serve import serve

    with reader_starter(READER) as starter:
        serve(engine, starter)
    return 0


def _simulated_agents() -> list[str]:
    if not paths.pools_file().exists():
        return []  # the usual case, without importing config
    from det_jupyter.master.service.pools_file import simulated_agents

    return simulated_agents()


if __name__ == "__main__":
    sys.exit(main())
