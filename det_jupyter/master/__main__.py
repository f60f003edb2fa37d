"""`python -m det_jupyter.master`: the user's one master, and the commands that people have for it.

`serve` is run at every `%load_ext`, mostly to find that a master is there already. So the lock
comes first, with nothing but the standard library imported; then the agent, which takes longest to
warm up; then all the rest.
"""

from __future__ import annotations

import argparse
import sys

from det_jupyter.contract.host import paths
from det_jupyter.contract.host.locks import take_lock
from det_jupyter.engine import ENGINES
from det_jupyter.errors import DetError

_TURN_S = 20.0  # how long a master may take to come up or to leave


def main() -> int:
    """Run one command; return the exit status."""
    options = _parser().parse_args()
    if options.verb == "serve":
        try:
            return _serve(options)
        except DetError as error:  # of our folders and files: the starter shows what we print
            sys.exit(str(error))
    from det_jupyter.master.cli import run

    return run(options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m det_jupyter.master", description="The background process of det_jupyter."
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("start", help="start it, if it does not run")
    stop = verbs.add_parser("stop", help="end it; running trials go on")
    stop.add_argument("--everything", action="store_true", help="kill what runs, too")
    status = verbs.add_parser("status", help="say whether it runs (exit status 0 or 3) and what")
    status.add_argument("--json", action="store_true", help="for programs")
    serve = verbs.add_parser("serve", help="be the master, in the foreground")
    serve.add_argument("--no-agent", action="store_true", help="start no agents")
    return parser


def _serve(options: argparse.Namespace) -> int:
    # A lock without a master's file is one of a master that comes up or leaves; only time tells.
    lock = take_lock(
        paths.master_lock(), timeout_s=_TURN_S, should_give_up=paths.master_file().exists
    )
    if lock is None:
        return 0
    paths.master_file().unlink(missing_ok=True)  # of a master that was killed
    engine = ENGINES["local"](_simulated_agents(), starts=not options.no_agent)
    engine.keep(connected=())
    from det_jupyter.master.serve import serve

    serve(engine)
    return 0


def _simulated_agents() -> list[str]:
    if not paths.pools_file().exists():
        return []  # as nearly always: then nothing more is imported yet
    from det_jupyter.master.service.pools_file import simulated_agents

    return simulated_agents()


if __name__ == "__main__":
    sys.exit(main())
