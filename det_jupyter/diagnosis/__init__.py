"""Finds what limits a trial's speed, from timings of its ranks and samples of its machines.

    StepTimes, SystemSamples ──► Window ──► Facts ──► verdict_rules ──► sentences ──► Verdict

Pure; the master calls it. verdict_rules.py has the theory. The results of a bottleneck experiment
(client/diagnosing/diagnosis_runs.py) are evaluated in recipes.py, gains.py, recipe_results.py and
conclusion.py.
"""

from __future__ import annotations

from det_jupyter.diagnosis.run_facts import RankSite, Setting
from det_jupyter.diagnosis.run_verdict import RunVerdict

__all__ = ["RankSite", "RunVerdict", "Setting"]
