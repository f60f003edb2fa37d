"""The verbs for a trial that trains."""

from __future__ import annotations

from det_jupyter.client import Trial
from det_jupyter.errors import UsageError
from det_jupyter.verbs.grammar import Call


def profile(call: Call) -> str:
    """Record some batches with torch.profiler."""
    given = call.options
    traces = Trial(call.client, given.id).profile(
        steps=given.steps, ranks=given.ranks, with_stack=given.with_stack
    )
    return repr(traces)


def change(call: Call) -> str:
    """Change a trial while it trains."""
    given = call.options
    values = {
        "lr": given.lr,
        "lr_factor": given.lr_factor,
        "optimizer": given.optimizer,
        "min_validation_period": given.min_validation_period,
        "priority": given.priority,
    }
    if all(value is None for value in values.values()):
        raise UsageError(
            f"{given.words}: nothing to change; give --lr, --lr-factor, --min-validation-period "
            "or --priority"
        )
    made = Trial(call.client, given.id).change(**values)
    said = [] if made is None else [repr(made)]
    if given.priority is not None:
        said.append(f"priority {given.priority} of its experiment")
    return f"Trial {given.id}: {'; '.join(said)}."


def kill(call: Call) -> str:
    """End a trial now; its experiment goes on."""
    view = call.client.kill_trial(call.options.id)
    return f"Trial {view.id} of experiment {view.experiment_id}: {view.state}."
