"""The verbs for several experiments at once: pause, activate, cancel, kill, archive and delete.

Each experiment is taken by itself: a refusal is named at the end and does not hold up the others.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from det_jupyter.client import Client
from det_jupyter.contract.messages import LIFE, CheckpointView, Delete, ExperimentView
from det_jupyter.contract.values.text import count, size
from det_jupyter.errors import Conflict, DetError, MasterUnreachable, UsageError
from det_jupyter.front.verbs.experiment_list import known_numbers, numbers_of
from det_jupyter.front.verbs.grammar import Call
from det_jupyter.front.verbs.showing import describe_state, title

_MOST_NAMED = 20


def command(call: Call) -> str:
    """Pause, activate, cancel or kill experiments."""

    def ask(number: int) -> str:
        view = call.client.change(LIFE[call.options.verb.name](experiment_id=number))
        return f"{title(view)}: {describe_state(view)}"

    return _each(call, ask)


def archive(call: Call) -> str:
    """Hide experiments from lists, or show them there again."""
    verb = call.options.verb.name
    done = {"archive": "hidden from lists", "unarchive": "shown in lists again"}[verb]

    def ask(number: int) -> str:
        view = call.client.change(LIFE[verb](experiment_id=number))
        return f"{title(view)}: {done}."

    return _each(call, ask)


def delete(call: Call) -> str:
    """Delete experiments, after asking once."""
    client, numbers = call.client, numbers_of(call)
    doomed = [client.experiment(i) for i in _existing(client, numbers)]
    whats = {view.id: _describe(view, client.checkpoints(view.id)) for view in doomed}
    if not is_sure(_question(whats), call.options):
        stays = f"{title(doomed[0])} stays" if len(doomed) == 1 else "all stay"
        return f"Nothing is deleted; {stays}."

    def ask(number: int) -> str:
        client.change(Delete(experiment_id=number))
        return f"Deleting {whats[number]}."

    return _each(call, ask, numbers)


def _existing(client: Client, numbers: Sequence[int]) -> Sequence[int]:
    """Return the numbers that are experiments'; all, if none is: the first is then an error."""
    known = known_numbers(client) if len(numbers) > 1 else numbers
    return [number for number in numbers if number in known] or numbers


def _describe(view: ExperimentView, checkpoints: Sequence[CheckpointView]) -> str:
    kept = [c for c in checkpoints if c.state != "DELETED"]
    num_bytes = sum(checkpoint.size_bytes for checkpoint in kept)
    return (
        f"experiment {view.id} “{view.name}” with {count(len(view.trials), 'trial')}, "
        f"{count(len(kept), 'checkpoint')} ({size(num_bytes)}), all metrics and logs"
    )


def _question(whats: dict[int, str]) -> str:
    if len(whats) == 1:
        return f"Delete {next(iter(whats.values()))}?"
    named = [f"  {what}" for what in whats.values()][:_MOST_NAMED]
    if more := len(whats) - len(named):
        named.append(f"  … and {more:,} more")
    return "\n".join([*named, f"Delete these {len(whats):,} experiments?"])


def is_sure(question: str, given: argparse.Namespace) -> bool:
    """Return whether the user means it, as the line or an answer says."""
    if given.yes:
        return True
    try:
        return input(f"{question} It cannot be undone. [y/N] ").strip().lower() in ("y", "yes")
    except (NotImplementedError, EOFError):  # IPython's, where the front end takes no input
        raise UsageError(
            f"{given.words}: this front end takes no answer; add --yes if you are sure"
        ) from None


def _each(call: Call, ask: Callable[[int], str], numbers: Sequence[int] | None = None) -> str:
    """Return a line for each; refusals of several are raised when all were asked."""
    numbers = numbers_of(call) if numbers is None else numbers
    done, refusals = [], []
    for number in numbers:
        try:
            done.append(ask(number))
        except MasterUnreachable:
            print("\n".join(done))
            raise
        except DetError as error:
            if len(numbers) == 1:
                raise
            refusals.append(str(error))
    if not refusals:
        return "\n".join(done)
    if done:
        print("\n".join(done))
    rest = "; the others are done" if done else ""
    problems = "".join(f"\n  {problem}" for problem in refusals)
    raise Conflict(
        f"{len(refusals)} of {count(len(numbers), 'experiment')} refused{rest}:{problems}"
    )
