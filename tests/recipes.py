"""Changes that follow the recipes of docs/recipes.md, each made in a copy of the package.

`tests/unit/test_recipes.py` compares the changed files with those of the recipe, and runs the
check, which uses what was added.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Replacement = tuple[str, str]  # a text that occurs once in the file, and its replacement


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A change that follows a recipe.

    Args:
        title: The title of the recipe.
        new: Added files, by path below det_jupyter.
        changed: Replacements in changed files, by path.
        check: Python code that raises unless the addition works.
    """

    title: str
    new: Mapping[str, str] = field(default_factory=dict)
    changed: Mapping[str, tuple[Replacement, ...]]
    check: str


RECIPES = (
    Recipe(
        title="A verb",
        new={
            "front/verbs/shouting.py": '''
from det_jupyter.front.verbs.grammar import Call


def shout(call: Call) -> str:
    """Return the name of an experiment in capitals."""
    return call.experiment(call.options.id).name.upper()
'''
        },
        changed={
            "front/verbs/table_experiments.py": (
                (
                    'Verb("show", ',
                    'Verb("shout", "print its name in capitals", verbs.shouting.shout, (ID,)),\n'
                    '    Verb("show", ',
                ),
            )
        },
        check="""
from types import SimpleNamespace
from det_jupyter.front.notebook.complete.magic_parsers import line_parser
from det_jupyter.front.verbs.grammar import Call, parse

options = parse(line_parser(), "shout 7")
call = Call(options=options, client=None, experiment=lambda n: SimpleNamespace(name=f"digits {n}"))
assert options.verb.run(call) == "DIGITS 7"
""",
    ),
    Recipe(
        title="A search method",
        new={
            "searcher/one_by_one.py": '''
from typing import Any, ClassVar, Literal, Mapping

from det_jupyter.searcher.full_length import FullLength
from det_jupyter.searcher.planning import BracketForecast, plan_full_length
from det_jupyter.searcher.searcher_section import OfTrials
from det_jupyter.searcher.trials import Trials


class OneByOneSearcher(OfTrials):
    """Random trials, one at a time."""

    name: Literal["one_by_one"]

    def make(self, trials: Trials) -> FullLength:
        return FullLength(trials, self.max_length, max_trials=self.max_trials)

    def plan(self, hyperparameters: Mapping[str, Any]) -> list[BracketForecast]:
        return [plan_full_length(self.max_trials, 1, self.max_length.amount)]
'''
        },
        changed={
            "searcher/methods.py": (
                (
                    "from det_jupyter.searcher.optuna import OptunaSearcher\n",
                    "from det_jupyter.searcher.one_by_one import OneByOneSearcher\n"
                    "from det_jupyter.searcher.optuna import OptunaSearcher\n",
                ),
                ("    | OptunaSearcher,\n", "    | OptunaSearcher\n    | OneByOneSearcher,\n"),
            )
        },
        check="""
from det_jupyter.config import parse_config
from det_jupyter.searcher import Search

config = parse_config({
    "entrypoint": "m:T", "hyperparameters": {"global_batch_size": 8},
    "searcher": {"name": "one_by_one", "metric": "loss", "max_length": {"batches": 4},
                 "max_trials": 3},
}, default_seed=1)
actions = Search(config.searcher, config.hyperparameters, 1).start()
assert [type(action).__name__ for action in actions] == ["Create", "TrainTo"], actions
""",
    ),
    Recipe(
        title="A key of the configuration",
        changed={
            "config/sections.py": (
                (
                    "class Hang(Section):",
                    'class Greeting(Section):\n    """What a trial prints first."""\n\n'
                    '    text: Text = "hello"\n    """The line."""\n\n\nclass Hang(Section):',
                ),
            ),
            "config/experiment_config.py": (
                ("    Hang,\n", "    Greeting,\n    Hang,\n"),
                (
                    "    hang: Hang = Hang.model_construct()\n",
                    "    greeting: Greeting = Greeting.model_construct()\n"
                    '    """What a trial prints first."""\n'
                    "    hang: Hang = Hang.model_construct()\n",
                ),
            ),
        },
        check="""
from det_jupyter.config import describe, parse_config
from det_jupyter.config.reference_page import markdown
from det_jupyter.errors import ConfigError

document = {"entrypoint": "m:T", "hyperparameters": {"global_batch_size": 8},
            "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 4}}}
config = parse_config({**document, "greeting": {"text": "hi"}}, default_seed=1)
assert config.greeting.text == "hi" and config.to_document()["greeting"] == {"text": "hi"}
assert describe("greeting.text").text == "The line."
assert "The line." in markdown()
try:
    parse_config({**document, "greeting": {"texts": "hi"}}, default_seed=1)
except ConfigError as error:
    assert "greeting.texts" in str(error)
else:
    raise AssertionError("a wrong key is refused")
""",
    ),
    Recipe(
        title="A system metric",
        changed={
            "contract/values/measures.py": (
                (
                    '    "memory_free": Measure("memory available", "bytes"),\n',
                    '    "memory_free": Measure("memory available", "bytes"),\n'
                    '    "load": Measure("processes that want a core"),\n',
                ),
            ),
            "agent/sampler/host_usage.py": (
                (
                    '            (("memory_free",), _memory),\n',
                    '            (("memory_free",), _memory),\n            (("load",), _load),\n',
                ),
                (
                    "def _disk_counts() ",
                    'def _load() -> Values:\n    return {"load": psutil.getloadavg()[0]}\n\n\n'
                    "def _disk_counts() ",
                ),
            ),
        },
        check="""
from det_jupyter.agent.sampler.host_usage import HostReader
from det_jupyter.contract.values.measures import measure_of

assert HostReader().read().values["load"] >= 0
assert measure_of("load").title == "processes that want a core"
""",
    ),
    Recipe(
        title="A storage of checkpoints",
        new={
            "storage/tape.py": '''
from pathlib import Path

from det_jupyter.storage.directory import DirectoryStorage


class TapeStorage(DirectoryStorage):
    """A drive that is mounted as a folder."""

    def __init__(self, location: str) -> None:
        super().__init__(Path("/mnt") / location.removeprefix("tape://"))
'''
        },
        changed={
            "storage/kinds.py": (
                (
                    "from det_jupyter.storage.directory import DirectoryStorage, existing\n",
                    "from det_jupyter.storage.directory import DirectoryStorage, existing\n"
                    "from det_jupyter.storage.tape import TapeStorage\n",
                ),
                (
                    '    "": lambda location: ',
                    '    "tape": TapeStorage,\n    "": lambda location: ',
                ),
            ),
            "config/storages.py": (
                (
                    "CheckpointStorage = Annotated[",
                    'class Tape(Storage):\n    """A tape."""\n\n    type: Literal["tape"]\n'
                    '    """The kind of storage."""\n    drive: Text\n    """Its name."""\n\n'
                    "    @staticmethod\n"
                    "    def locate(storage: Mapping[str, Any]) -> str | None:\n"
                    "        return f\"tape://{storage['drive']}\"\n\n\n"
                    "CheckpointStorage = Annotated[Tape | ",
                ),
            ),
        },
        check="""
from pathlib import Path
from det_jupyter.config import parse_config
from det_jupyter.storage import open_storage

config = parse_config({
    "entrypoint": "m:T", "hyperparameters": {"global_batch_size": 8},
    "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 4}},
    "checkpoint_storage": {"type": "tape", "drive": "st0"},
}, default_seed=1)
storage = open_storage(config.checkpoint_storage.location, Path("/data"))
assert type(storage).__name__ == "TapeStorage"
""",
    ),
    Recipe(
        title="A tracker",
        new={
            "trackers/paper_sender.py": '''
from det_jupyter.contract.messages import TrackerProgress, TrackerWork
from det_jupyter.trackers.service import MasterFeed


class PaperSender:
    """Prints experiments."""

    def __init__(self, source: MasterFeed) -> None:
        self._source = source

    def send(self, work: TrackerWork) -> None:
        for items in self._source.pages(work.experiment_id, work.seq):
            self._source.advance(work, work.seq, TrackerProgress(seq=items[-1].seq))
'''
        },
        changed={
            "config/tracker_section.py": (
                (
                    '    "mlflow": ("tracking_uri", "experiment"),\n',
                    '    "mlflow": ("tracking_uri", "experiment"),\n    "paper": (),\n',
                ),
                ('Literal["mlflow", "wandb"]', 'Literal["mlflow", "wandb", "paper"]'),
                (
                    '        return f"wandb {self.group} (offline)"\n',
                    '        if self.type == "paper":\n            return "paper"\n'
                    '        return f"wandb {self.group} (offline)"\n',
                ),
            ),
            "trackers/__main__.py": (
                (
                    '    if tracker.type == "wandb":\n',
                    '    if tracker.type == "paper":\n'
                    "        from det_jupyter.trackers.paper_sender import PaperSender\n\n"
                    "        return PaperSender(source)\n"
                    '    if tracker.type == "wandb":\n',
                ),
            ),
        },
        check="""
from types import SimpleNamespace
from det_jupyter.config.tracker_section import Tracker
from det_jupyter.contract.messages import FeedItem, TrackerWork
from det_jupyter.trackers.__main__ import _sender_of

assert Tracker(type="paper").label == "paper"
advanced = []
item = FeedItem(seq=9, at=1.0, kind="metrics", experiment_id=7, data={})
source = SimpleNamespace(
    pages=lambda number, after: [[item]],
    advance=lambda work, after, progress: advanced.append(progress.seq),
)
sender = _sender_of(SimpleNamespace(tracker={"type": "paper"}), source)
sender.send(TrackerWork(id=1, experiment_id=7, key="k", seq=0, runs={}))
assert advanced == [9]
""",
    ),
    Recipe(
        title="A trainer of another library",
        new={
            "integrations/sklearn.py": '''
from det_jupyter import core
from det_jupyter.integrations.common import current_context


class DetCallback:
    """A callback of a trainer that calls it after each step."""

    def __init__(self, context: core.Context | None = None) -> None:
        self._core = current_context(context, "sklearn.DetCallback")

    def on_step(self, step: int, loss: float) -> None:
        self._core.train.report_training_metrics(step, {"loss": loss})
'''
        },
        changed={
            "contract/trial/plain_trainers.py": (
                (
                    '    "keras.Sequential": _KERAS,\n',
                    '    "sklearn.Trainer": PlainTrainer("sklearn", "fit", is_late=True),\n'
                    '    "keras.Sequential": _KERAS,\n',
                ),
            )
        },
        check="""
from det_jupyter import core
from det_jupyter.contract.trial.plain_trainers import describe_plain
from det_jupyter.integrations.sklearn import DetCallback

with core.init() as context:
    DetCallback(context).on_step(1, 0.5)
assert "det_jupyter.integrations.sklearn" in describe_plain("sklearn.Trainer", "finetune")
""",
    ),
)
