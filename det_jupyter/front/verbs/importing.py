"""The verb that imports runs of other tools."""

from __future__ import annotations

import os
import sys
from getpass import getpass
from pathlib import Path

from det_jupyter.client.imports.determined.dump import DeterminedDump
from det_jupyter.client.imports.determined.master import DeterminedMaster
from det_jupyter.client.imports.determined.storing import DeterminedImport, import_determined
from det_jupyter.client.imports.importing import ImportResult, import_runs
from det_jupyter.client.tables import plain_table
from det_jupyter.contract.values.text import count
from det_jupyter.errors import DetError
from det_jupyter.front.verbs.grammar import Call

_KINDS = {
    "values": "values of metrics",
    "lines": "lines of logs",
    "versions": "versions of models",
}


def import_(call: Call) -> str:
    """Make experiments of the runs at a path or URI; return what was imported."""
    given = call.options
    if given.from_determined is not None:
        return _of_determined(call, given.from_determined)
    found = import_runs(
        call.client,
        given.source,
        metric=given.metric,
        larger_is_better=given.larger_is_better,
    )
    return "\n".join(line for each in found for line in _lines(call, each))


def _lines(call: Call, found: ImportResult) -> list[str]:
    number = found.experiment_id
    runs, values = count(found.num_runs, "run"), count(found.num_values, "value")
    if not found.num_new:
        first = f"Experiment {number} has all {runs} and {values} of {found.source} already."
    else:
        first = f"Experiment {number} has {runs} and {values} of {found.source}."
    show = call.reader.fill(f"`{{det}} experiment show {number}` shows it")
    if found.metric:
        about = f"Its trials are compared by {found.metric}; {show}."
    else:
        names = f" ({', '.join(found.validated)})" if found.validated else ""
        about = (
            f"No metric was given to compare its trials by{names}; delete it and import again "
            f"with --metric NAME, and --larger-is-better if that is so; {show}."
        )
    return [first, about, *(f"Not read: {remark}" for remark in found.remarks)]


def _of_determined(call: Call, given: str) -> str:
    def ask(address: str) -> tuple[str, str]:
        try:
            if call.is_shell and not sys.stdin.isatty():
                raise EOFError
            user = input(f"User of {address}: ")
            return user, getpass(f"Password of {user}: ")
        except (EOFError, NotImplementedError):  # a notebook without a user has no input
            raise DetError(
                f"{address}: a user and password are needed, and there is no prompt here; set "
                f"DET_MASTER={address}, and DET_USER and DET_PASS, or DET_USER_TOKEN"
            ) from None

    def tell(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    is_address = "://" in given
    path = Path(os.path.expanduser(given))
    if not is_address and not (given and os.path.exists(path)):
        raise DetError(
            f"--from-determined: got {given}, expected the file of a dump that is here, or an "
            "address, such as http://localhost:8080"
        )
    with DeterminedMaster(given, ask) if is_address else DeterminedDump(path) as source:
        return "\n".join(_counted(import_determined(call.client, source, tell)))


def _counted(found: DeterminedImport) -> list[str]:
    rows = [
        (_KINDS.get(kind, kind), *map(str, (n.found, n.imported, n.known, n.left_out)))
        for kind, n in found.counts.items()
    ]
    return [
        plain_table(("", "found", "imported", "here already", "left out"), rows),
        *(f"Left out, {number}: {reason}" for reason, number in found.reasons.items()),
        *(
            f"Checkpoints are in {folder}, which does not exist on this computer, or has none of "
            "them: mount it there to load them"
            for folder in sorted(found.unseen)
        ),
    ]
