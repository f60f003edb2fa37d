"""A report on a trial that hangs, as text: where its ranks are, with their stacks."""

from __future__ import annotations

import platform
import time
from collections.abc import Iterator

from det_jupyter._version import __version__
from det_jupyter.contract.host.versions import installed_versions
from det_jupyter.contract.messages import HangReport, RankStall, TrialView
from det_jupyter.contract.values.text import date


class ShownHang(str):
    """The text of a report; displays as it prints."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def hang_text(trial: TrialView, hang: HangReport) -> ShownHang:
    """Return the report on a hang as Markdown.

    It has lines of the user's code, and neither environment variables nor hyperparameters.
    """
    versions = {"det_jupyter": __version__} | installed_versions()
    run = trial.allocation
    lines = [
        f"# Trial {trial.id} of experiment {trial.experiment_id} hangs",
        "",
        f"{hang.sentence(time.time())}.",
        "",
        f"- found at {date(hang.at)}, nothing has moved since {date(hang.since)}",
        f"- {', '.join(f'{name} {version}' for name, version in versions.items() if version)}",
        f"- {platform.platform()}",
        f"- {len(hang.ranks)} ranks, {trial.steps_completed} steps completed",
    ]
    backends = sorted({rank.backend for rank in run.ranks if rank.backend}) if run else []
    lines += [f"- backend: {', '.join(backends)}"] if backends else []
    for rank in hang.ranks:
        lines += ["", *_rank_lines(rank)]
    return ShownHang("\n".join(lines) + "\n")


def _rank_lines(rank: RankStall) -> Iterator[str]:
    batch = f", batch {rank.batch}" if rank.batch is not None else ""
    what = f"waits in {rank.collective}" if rank.kind == "waits" else f"is {rank.kind}"
    yield f"## Rank {rank.rank} {what}{batch} (process {rank.pid})"
    yield ""
    if rank.call:
        yield f"- in `{rank.call}` ({rank.place})"
    if rank.child:
        yield f"- its data loader's worker {rank.child}"
    yield from (f"- {line}" for line in rank.evidence)
    if rank.begun:
        begun = [f"{number}: {text}" for number, text in sorted(rank.begun.items())]
        yield f"- last collectives of the default group: {'; '.join(begun)}"
    if rank.stack:
        yield from ("", "```", rank.stack, "```")
