"""The searches of the experiments that are not over, alive.

An experiment's state holds its search as a snapshot, which grows with every trial: to make it anew
for each event would cost more the longer a search runs. So the searches live here, and their
snapshots are taken only when the machine's state is written down.
"""

from __future__ import annotations

from det_jupyter.config import parse_config
from det_jupyter.master.machine.core.state import Experiment, MachineState
from det_jupyter.searcher import Search


class Searches:
    """Searches by experiment, each made from its snapshot when it is first asked for."""

    def __init__(self) -> None:
        self._alive: dict[int, Search] = {}

    def of(self, experiment: Experiment) -> Search:
        """Return an experiment's search."""
        search = self._alive.get(experiment.id)
        if search is None:
            search = Search(parse_config(experiment.config), experiment.searcher)
            self._alive[experiment.id] = search
        return search

    def forget(self, experiment: Experiment) -> None:
        """The experiment is over: nobody asks its search any more."""
        self._alive.pop(experiment.id, None)
        experiment.searcher = None

    def write_into(self, state: MachineState) -> None:
        """Have the state hold what the living searches know."""
        for experiment_id, search in self._alive.items():
            state.experiments[experiment_id].searcher = search.snapshot()

    def take_back(self, state: MachineState) -> None:
        """Have the state forget it again: it would be there twice."""
        for experiment_id in self._alive:
            state.experiments[experiment_id].searcher = None
