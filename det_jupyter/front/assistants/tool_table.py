"""The table of tools: which verbs assistants may use, and with which of their arguments.

A tool without `effect` only reads. One with an effect runs after the user has agreed, or if its
name is among those that the user's settings allow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from det_jupyter.front.cli.shell_table import SHELL
from det_jupyter.front.verbs.grammar import Argument, Call, Lazy, OneOf, Verb, VerbGroup

assistants = Lazy("det_jupyter.front.assistants")


@dataclass(frozen=True, kw_only=True)
class Tool:
    """A verb as a tool.

    Args:
        name: Name of the tool.
        line: The verb's words, after `det`.
        arguments: Those of the verb's arguments that the tool has, by their names in the tool.
        note: Added to the verb's help in the description.
        configuration: Meaning of the argument `configuration`, YAML that follows the line; "": the
            tool has none.
        effect: What a change does, for the question to the user; "": the tool only reads.
        is_destructive: Whether a change ends or overwrites something.
        is_untrusted: Whether the answer is output of users' code.
        run: Carries it out instead of the verb's function.
    """

    name: str
    line: str
    arguments: tuple[str, ...] = ()
    note: str = ""
    configuration: str = ""
    effect: str = ""
    is_destructive: bool = False
    is_untrusted: bool = False
    run: Callable[[Call], Any] | None = None

    @cached_property
    def verb(self) -> Verb:
        """The verb."""
        found: Verb | VerbGroup = SHELL
        for word in self.line.split():
            assert isinstance(found, VerbGroup)
            found = next(each for each in found.members if each.name == word)
        if isinstance(found, VerbGroup):  # such as `trial set`, whose verb has no word
            found = next(each for each in found.members if each.name == "")
        assert isinstance(found, Verb)
        return found

    @cached_property
    def chosen(self) -> dict[str, Argument]:
        """The tool's arguments, by name."""
        known = {name_of(each): each for each in _flat(self.verb.arguments)}
        return {name: known[name] for name in self.arguments}

    @property
    def is_update(self) -> bool:
        """Whether a call without an option changes nothing."""
        return self.name.startswith("change_")

    @property
    def description(self) -> str:
        """What it does, for assistants."""
        text = f"{self.verb.help[0].upper()}{self.verb.help[1:]}."
        return f"{text} {self.note}".rstrip()


def name_of(each: Argument) -> str:
    """Return an argument's name in a tool: its first long option, or its place in the line."""
    longs = [name for name in each.names if name.startswith("--")]
    return (longs or each.names)[0].removeprefix("--").replace("-", "_")


def _flat(arguments: tuple[Argument | OneOf, ...]) -> Iterator[Argument]:
    for each in arguments:
        yield from each.arguments if isinstance(each, OneOf) else (each,)


_ROWS = ("limit", "offset")
_YAML = "the configuration, as YAML; instead of a file"
_CHANGES = 'configuration changes, such as ["hyperparameters.lr=0.01"]'

TOOLS: tuple[Tool, ...] = (
    Tool(name="list_experiments", line="experiment list",
         arguments=("text", "name", "label", "state", "since", "until", "sort", "all", *_ROWS),
         note="With state, progress and best value of the searcher's metric."),
    Tool(name="describe_experiment", line="experiment show", arguments=("id",),
         note="State, trials, metrics, failures with tracebacks, reasons for waiting."),
    Tool(name="list_trials", line="experiment trials",
         arguments=("id", "sort_by", "reverse", *_ROWS),
         note="With the hyperparameters that differ."),
    Tool(name="describe_trial", line="trial describe",
         arguments=("id", "metrics_summary", *_ROWS)),
    Tool(name="show_config", line="experiment config", arguments=("id",),
         note="As YAML that `submit` takes."),
    Tool(name="show_code", line="experiment code", arguments=("id",), is_untrusted=True),
    Tool(name="why", line="why", arguments=("trial", "experiment"),
         note="Also for one that runs: it says so."),
    Tool(name="verdict", line="experiment verdict", arguments=("id",)),
    Tool(name="logs", line="experiment logs",
         arguments=("id", "trial", "rank", "tail", "head", "since", "until", "level", "search"),
         is_untrusted=True, note="The last 100 lines unless `tail` or `head` is given."),
    Tool(name="compare", line="experiment compare", arguments=("ids", "trials"),
         note="Configuration, hyperparameters, code, versions and results."),
    Tool(name="preview", line="preview-search",
         arguments=("file", "template", "seconds_per_batch"), configuration=_YAML),
    Tool(name="explain_key", line="experiment ?", arguments=("path",),
         note="Without a path: all top-level keys."),
    Tool(name="slots", line="slots", arguments=("all",)),
    Tool(name="queue", line="queue", arguments=("all",)),
    Tool(name="docs", line="docs", arguments=("topic",)),
    Tool(name="submit", line="experiment create",
         arguments=("config_file", "model_def", "config", "name", "template", "paused",
                    "queue_anyway"),
         configuration=_YAML, run=assistants.changes.submit_folder,
         effect="It runs this code with your rights.",
         note=f"Give config_file or configuration. `config`: {_CHANGES}."),
    Tool(name="fork", line="experiment fork",
         arguments=("id", "config", "trial", "checkpoint", "queue_anyway"),
         effect="It runs the same code again, with your rights.",
         note=f"`config`: {_CHANGES}. The code is the other experiment's."),
    Tool(name="continue", line="experiment continue", arguments=("id", "config"),
         effect="It trains on, with your rights.",
         note=f"`config`: {_CHANGES}, such as a longer searcher.max_length."),
    Tool(name="pause", line="experiment pause", arguments=("ids",),
         effect="Its ranks save their state and release their slots. `activate` continues it."),
    Tool(name="activate", line="experiment activate", arguments=("ids",),
         effect="It waits for slots and trains on."),
    Tool(name="cancel", line="experiment cancel", arguments=("ids",), is_destructive=True,
         effect="It ends after saving its state."),
    Tool(name="kill", line="experiment kill", arguments=("ids",), is_destructive=True,
         effect="It ends now. What it has not saved is lost."),
    Tool(name="kill_trial", line="trial kill", arguments=("id",), is_destructive=True,
         effect="It ends now. What it has not saved is lost; its experiment goes on."),
    Tool(name="change_trial", line="trial set",
         arguments=("id", "lr", "lr_factor", "optimizer", "min_validation_period", "priority"),
         effect="It trains on with the new values.", note="While it trains."),
    Tool(name="change_search", line="experiment change",
         arguments=("id", "max_trials", "max_length", "max_concurrent", "hyperparameters"),
         effect="The search goes on with the new limits."),
)  # fmt: skip

CHANGES = tuple(tool.name for tool in TOOLS if tool.effect)
