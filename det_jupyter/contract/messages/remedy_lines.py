"""What a reader types to carry out a remedy (`wire.Remedy`)."""

from __future__ import annotations

from shlex import quote

from det_jupyter.contract.messages import Remedy
from det_jupyter.contract.values.reader import Reader


def lines_of(remedy: Remedy, reader: Reader) -> list[str]:
    """Return the lines to type, in order; none if there is nothing to type.

    >>> from det_jupyter.contract.values.reader import NOTEBOOK, SHELL
    >>> remedy = Remedy(verb="pause", target=[3, 4], text="pause experiments 3 and 4")
    >>> lines_of(remedy, NOTEBOOK)
    ['%det_experiment pause 3', '%det_experiment pause 4']
    >>> lines_of(Remedy(verb="end_processes", values={"pids": [72]}, text="end it"), SHELL)
    ['kill 72']
    """
    values, names = remedy.values, [quote(str(name)) for name in remedy.target]
    det, experiment = reader.det, reader.experiment
    match remedy.verb:
        case "pause" | "activate" | "kill":
            return [f"{experiment} {remedy.verb} {name}" for name in names]
        case "set":
            options = " ".join(
                f"--{key.replace('_', '-')} {quote(str(value))}" for key, value in values.items()
            )
            return [f"{experiment} set {name} {options}" for name in names]
        case "move":
            return [f"{det} job move {name} --ahead-of {values['ahead_of']}" for name in names]
        case "kill_and_continue":
            return [f"{experiment} {verb} {name}" for name in names
                    for verb in ("kill", "continue")]  # fmt: skip
        case "kill_and_submit":
            kills = [f"{experiment} kill {name}" for name in names]
            return [*kills, f"resources: {{slots_per_trial: {values['slots_per_trial']}}}"]
        case "enable_slots":
            return [f"{det} slot enable {name} {_listed(values['slot_ids'])}" for name in names]
        case "end_processes":
            return [f"{reader.shell}kill {_listed(values['pids'])}"]
        case "wait" | "ask_for_devices" | "add_agent":
            return []


def _listed(values: object) -> str:
    assert isinstance(values, list)
    return " ".join(map(str, values))
