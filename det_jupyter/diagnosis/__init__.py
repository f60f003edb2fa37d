"""Says what limits a trial, from the times of its ranks and the samples of its machines.

    StepTimes, SystemSamples ──► Window ──► Facts ──► rules ──► sentences ──► Verdict

Pure: the master feeds it. rules.py has its theory. What the runs of a bottleneck experiment say
(client/diagnosis_runs.py) is in recipes.py, gains.py and outcome.py.
"""

from __future__ import annotations

from det_jupyter.diagnosis.facts import RankSite, Setting
from det_jupyter.diagnosis.run_verdict import RunVerdict

__all__ = ["RankSite", "RunVerdict", "Setting"]
