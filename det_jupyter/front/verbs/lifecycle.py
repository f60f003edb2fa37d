"""Verbs for several experiments at once: pause, activate, cancel, kill, archive and delete.

Each experiment gets its own request: after a refusal the others are still handled, and the error
at the end lists the refusals.
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

    given = {"at_once": True} if getattr(call.options, "at_once", False) else {}

    def change(number: int) -> str:
        request = LIFE[call.options.verb.name](experiment_id=number, **given)
        view = call.client.change(request)
        return f"{title(view)}: {describe_state(view)}"

    return _for_each(call, change)


def archive(call: Call) -> str:
    """Hide experiments from lists, or show them there again."""
    verb = call.options.verb.name
    done = {"archive": "hidden from lists", "unarchive": "shown in lists again"}[verb]

    def change(number: int) -> str:
        view = call.client.change(LIFE[verb](experiment_id=number))
        return f"{title(view)}: {done}."

    return _for_each(call, change)


def delete(call: Call) -> str:
    """Delete experiments, after one confirmation."""
    client, numbers = call.client, numbers_of(call)
    views = [client.experiment(i) for i in _existing(client, numbers)]
    contents = {view.id: _describe(view, client.checkpoints(view.id)) for view in views}
    if not confirm(_question(contents), call.options):
        stays = f"{title(views[0])} stays" if len(views) == 1 else "all stay"
        return f"Nothing is deleted; {stays}."

    def change(number: int) -> str:
        client.change(Delete(experiment_id=number))
        return f"Deleting {contents[number]}."

    return _for_each(call, change, numbers)


def _existing(client: Client, numbers: Sequence[int]) -> Sequence[int]:
    """Return the ids that exist; if none does, all, so that the first request fails."""
    known = known_numbers(client) if len(numbers) > 1 else numbers
    return [number for number in numbers if number in known] or numbers


def _describe(view: ExperimentView, checkpoints: Sequence[CheckpointView]) -> str:
    kept = [c for c in checkpoints if c.state != "DELETED"]
    num_bytes = sum(checkpoint.size_bytes for checkpoint in kept)
    return (
        f"experiment {view.id} “{view.name}” with {count(len(view.trials), 'trial')}, "
        f"{count(len(kept), 'checkpoint')} ({size(num_bytes)}), all metrics and logs"
    )


def _question(contents: dict[int, str]) -> str:
    if len(contents) == 1:
        return f"Delete {next(iter(contents.values()))}?"
    listed = [f"  {text}" for text in contents.values()][:_MOST_NAMED]
    if more := len(contents) - len(listed):
        listed.append(f"  … and {more:,} more")
    return "\n".join([*listed, f"Delete these {len(contents):,} experiments?"])


def confirm(question: str, given: argparse.Namespace) -> bool:
    """Return whether the user confirms, by `--yes` or by an answer.

    Raises:
        UsageError: The front end takes no input.
    """
    if given.yes:
        return True
    try:
        return input(f"{question} It cannot be undone. [y/N] ").strip().lower() in ("y", "yes")
    except (NotImplementedError, EOFError):  # IPython's, where the front end takes no input
        raise UsageError(
            f"{given.words}: this front end takes no answer; add --yes if you are sure"
        ) from None


def _for_each(
    call: Call, change: Callable[[int], str], numbers: Sequence[int] | None = None
) -> str:
    """Call `change` for each experiment, and return its lines; refusals are raised at the end."""
    numbers = numbers_of(call) if numbers is None else numbers
    done, refusals = [], []
    for number in numbers:
        try:
            done.append(change(number))
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
