"""A fake master with data of every kind, and the answers of lines of verbs."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from det_jupyter.client import Client, Experiment
from det_jupyter.contract.messages import (
    AgentStatus,
    Archive,
    ChangeQueue,
    ChangeRequest,
    ChangeTrial,
    CheckpointView,
    ClusterView,
    Curve,
    Delete,
    DropCheckpoints,
    EffectiveConfig,
    ExperimentQuery,
    ExperimentRows,
    ExperimentView,
    JobEntry,
    KillTrial,
    LogLine,
    LogPage,
    LogQuery,
    Pace,
    PlannedBracket,
    PlannedRange,
    PlannedTrials,
    PoolStatus,
    PreviewRequest,
    PreviewView,
    Profile,
    ProfileTrial,
    ProfileView,
    Reason,
    Series,
    SeriesPage,
    SeriesQuery,
    State,
    SwitchSlots,
    TemplateView,
    TraceView,
    TrialChangeView,
    TrialView,
    Unarchive,
    Verdict,
)
from det_jupyter.contract.messages.rank_orders import Change
from det_jupyter.contract.values.reader import NOTEBOOK, Reader
from det_jupyter.errors import NotFound
from det_jupyter.front.verbs.grammar import Call, LineParser, VerbGroup, make_parser, parse
from det_jupyter.front.verbs.table_experiments import MEMBERS
from det_jupyter.front.verbs.table_others import OTHERS
from tests.unit.front.verbs.cluster_samples import (
    agent,
    busy_agent,
    cluster,
    entry,
    holding,
    job,
    pool,
    reason,
    slot,
)
from tests.unit.front.verbs.finding_samples import row
from tests.unit.front.verbs.recording_client import noted
from tests.unit.view.view_samples import CREATED_AT, checkpoint, curve, experiment, trial

_GROUP = VerbGroup(
    name="det",
    help="lines",
    members=(VerbGroup(name="e", help="experiments", default="list", members=MEMBERS), *OTHERS),
)


def planned(**counts: int) -> list[PlannedTrials]:
    return [PlannedTrials(length={"batches": int(k[1:])}, num_trials=n) for k, n in counts.items()]


def preview_of(**changes: Any) -> PreviewView:
    fields: dict[str, Any] = {
        "searcher": "asha", "metric": "error", "unit": "batches", "num_trials": 4,
        "trials": planned(b10=3, b1000=1),
        "brackets": [
            PlannedBracket(trials=planned(b10=2, b1000=1)), PlannedBracket(trials=planned(b10=1)),
        ],
        "expected": 1030.4, "least": 1030.0, "most": 2000.0, "full": 4000.0, "slots": 2,
        "concurrent": 2, "pace": Pace(unit="batches", seconds_per_unit=0.5, source="as given"),
        "seconds": 300.0,
        "ranges": [PlannedRange(name="lr", range="0.1 to 1", samples=["a", "b"])],
    }  # fmt: skip
    return PreviewView(**fields | changes)


def search() -> ExperimentView:
    """Return a search with a trial in each state."""
    verdict = Verdict(kind="healthy", sentence="Fine.", at=CREATED_AT, batches=50)
    trials = [
        trial(hparams={"lr": 0.1, "net": {"depth": 2}}, best_metric=0.5, latest_metric=0.4,
              verdict=verdict),
        trial(id=2, hparams={"lr": 0.2, "net": {"depth": 2}}, best_metric=0.75,
              state=State.COMPLETED, allocation=None, ended_at=CREATED_AT + 60),
        trial(id=3, hparams={"lr": 0.3}, state=State.ERROR, allocation=None),
    ]  # fmt: skip
    config = {
        "searcher": {"name": "random", "metric": "accuracy", "smaller_is_better": False,
                     "max_trials": 3, "max_length": {"epochs": 2}, "max_concurrent_trials": 0},
        "description": "As on Monday.", "labels": ["good", "wide"],
    }  # fmt: skip
    return experiment(*trials, config=config, pool="night", priority=10, max_slots=8, weight=2.0)


def busy_cluster() -> ClusterView:
    """Return two pools, with slots in each state and with trials that wait."""
    lost = agent(slot(0), slot(1), name="gone", hostname="far", connected=False)
    default = pool(busy_agent(), lost, agent(slot(0), name="right", num_aux=1), num_waiting=7)
    night = pool(name="night", policy="fair_share", preemption=False)
    queue = [entry(), *(entry(10 + i, i + 1) for i in range(3)),
             entry(20, 4, experiment_id=6, slots=1), entry(21, 5, experiment_id=6)]  # fmt: skip
    held = [holding(), holding(30, pool="night", agent_ids=["right", "left"])]
    return cluster(default, night, holding=held, queue=queue)


class Answering:
    """Answers as the master does, and remembers what it was asked for."""

    def __init__(self, folder: Path) -> None:
        self.view = search()
        self.asked: list[Any] = []
        self.folder = folder
        self.session = SimpleNamespace(
            info=SimpleNamespace(data_dir=str(folder), checkpoint_storage="")
        )
        self.kept = [
            template("digits", {"resources": {"slots_per_trial": 2}, "name": "x"}),
            template("wide", {"max_restarts": 2}),
        ]
        self.planned = preview_of()
        self.view_of_cluster = busy_cluster()
        self.lines = [
            LogLine(
                id=i, at=CREATED_AT + i, trial_id=1, run=1 + i // 3, rank=i % 2, text=f"line {i}"
            )
            for i in range(1, 6)
        ]

    def experiment(self, experiment_id: int) -> ExperimentView:
        if experiment_id >= 90:
            raise NotFound(
                f"there is no experiment {experiment_id}", what="experiment", number=experiment_id
            )
        return self.view.model_copy(update={"id": experiment_id})

    def trial(self, trial_id: int) -> TrialView:
        return next(each for each in self.view.trials if each.id == trial_id)

    def checkpoints(self, experiment_id: int) -> list[CheckpointView]:
        return [
            stored(self.folder, 10, 0.5),
            stored(self.folder, 20, 0.75, trial_id=2),
            stored(self.folder, 30, None),
            checkpoint(40, 0.9, state="DELETED", path="gone"),
        ]

    def checkpoint(self, uuid: str) -> CheckpointView:
        found = [each for each in self.checkpoints(7) if each.uuid == uuid]
        if not found:
            raise NotFound(f"there is no checkpoint {uuid}")
        return found[0]

    def curves(
        self, experiment_id: int, *, max_points: int | None = None, repeats: bool = False
    ) -> list[Curve]:
        return [
            curve("training", "loss", [2.0, 1.0, 0.5], stride=10),
            curve("validation", "error", [0.5, 0.4, None], stride=10),
            curve("validation", "error", [0.9, 0.3], stride=10, trial_id=2),
            curve("rehearsal", "seconds", [1.0]),
        ]

    def change(self, request: ChangeRequest) -> Any:
        self.asked.append(noted(request))
        match request:
            case ChangeQueue():
                self.asked[-1] = [each.where for each in request.changes]
                return [self.experiment(one.request.experiment_id) for one in request.changes]
            case SwitchSlots():
                return busy_agent()
            case DropCheckpoints():
                return []
            case Archive() | Unarchive() | Delete():
                return self.experiment(request.experiment_id)
            case KillTrial():
                return trial(id=request.trial_id, state=State.STOPPING_KILLED)
            case ChangeTrial():
                change = Change(lr=0.5)
                made = TrialChangeView(id=1, at=CREATED_AT, change=change, steps_completed=58)
                return self._trial(trial(changes=[made]))
            case ProfileTrial():
                path = "trace.json.gz"
                traces = [TraceView(rank=0, path=path, size_bytes=2000, first=5, steps=3)]
                profile = Profile.built_from(request)
                done = ProfileView(id=1, at=CREATED_AT, profile=profile, traces=traces)
                return self._trial(trial(profiles=[done]))
            case _:
                return self.view

    def _trial(self, view: TrialView) -> TrialView:
        self.view = self.view.model_copy(update={"trials": [view]})
        return view

    def effective_config(self, experiment_id: int) -> EffectiveConfig:
        return EffectiveConfig(yaml="name: digits\n", config={}, origins={}, notices=["old words"])

    def templates(self) -> list[TemplateView]:
        return self.kept

    def template(self, name: str) -> TemplateView:
        return self.kept[0]

    def set_template(self, name: str, config: dict[str, Any]) -> TemplateView:
        self.asked.append((name, config))
        return template(name, config, updated_at=CREATED_AT + len(self.asked) - 1)

    def delete_template(self, name: str) -> TemplateView:
        self.asked.append(name)
        return self.kept[0]

    def preview(self, request: PreviewRequest) -> PreviewView:
        self.asked.append((request.config, request.template, request.seconds_per_batch))
        return self.planned

    def cluster(self, *, limit: int | None = None) -> ClusterView:
        return self.view_of_cluster

    def pools(self) -> list[PoolStatus]:
        return list(self.view_of_cluster.pools)

    def jobs(self) -> list[JobEntry]:
        night = job(5, pool="night", state=State.PAUSED, name="vgg " * 20, num_running=0)
        return [job(), job(4, num_running=0, slots_held=0, jobs_ahead=1), night]

    def agents(self) -> list[AgentStatus]:
        return [agent for pool in self.pools() for agent in pool.agents]

    def problems(self) -> list[str]:
        return ["pools.yaml: polls: unknown key"]

    def find(self, query: ExperimentQuery) -> ExperimentRows:
        self.asked.append(query.model_dump(exclude_defaults=True))
        found = [
            row(8, best_metric=None),
            row(7, is_archived=True, labels=["a", "b"], parent_id=3),
        ]
        return ExperimentRows(rows=found, num_more=1200, num_archived=2)

    def reason(self, trial_id: int) -> Reason:
        return reason(trial_id=trial_id)

    def logs(self, trial_id: int, query: LogQuery) -> LogPage:
        """Return lines in pages of two; of 9 with bars, of 10 until Ctrl-C, of 11 none."""
        self.asked.append(query.model_dump(exclude_defaults=True))
        if trial_id == 10 and query.after:
            raise KeyboardInterrupt
        if trial_id == 9:
            bars: dict[int, dict[str, Any]] = {
                1: {"is_open": True}, 4: {"text": "a\n 10%", "is_open": True}
            }  # fmt: skip
            self.lines = [each.model_copy(update=bars.get(each.id, {})) for each in self.lines]
        if trial_id == 11:
            self.lines = []
        fitting = [each for each in self.lines if each.id > query.after]
        lines = fitting[:2] if query.tail is None else fitting[max(0, len(fitting) - query.tail) :]
        last = lines[-1].id if lines else query.after
        return LogPage(lines=lines, total=len(fitting), last_id=last, is_over=len(fitting) <= 2)

    def experiment_logs(
        self, experiment_id: int, query: LogQuery, *, trial_id: int | None = None
    ) -> LogPage:
        return self.logs(experiment_id, query)

    def series(self, trial_id: int, query: SeriesQuery) -> SeriesPage:
        """Return two points of a series, and of those that are asked for by name."""
        names = query.names or ["forward"]
        series = [
            Series(source="rank:0", name=name, title=name, unit="s", x=[1.0, 2.0], low=[0.1, 0.2],
                   mid=[0.3, 0.4], high=[0.5, 0.6])
            for name in names
        ]  # fmt: skip
        return SeriesPage(series=series, began_at=None)

    def code(self, experiment_id: int) -> dict[str, str]:
        return {"Cell In[5]": "class T: ...\n"}


def template(name: str, config: dict[str, Any], **changes: Any) -> TemplateView:
    times = {"created_at": CREATED_AT, "updated_at": CREATED_AT} | changes
    return TemplateView(name=name, config=config, **times)


def stored(folder: Path, steps: int, metric: float | None, **changes: Any) -> CheckpointView:
    """Return a checkpoint whose files are there."""
    path = folder / f"stored-{steps}"
    (path / "code").mkdir(parents=True, exist_ok=True)
    (path / "code" / "x.py").write_text("x = 1\n")
    (path / "metadata.json").write_text(json.dumps({"uuid": f"uuid-{steps}"}))
    return checkpoint(steps, metric, path=str(path), **changes)


@cache
def parser() -> LineParser:
    """Return the parser of all lines."""
    return make_parser(_GROUP)


def answer_to(
    master: Answering, line: str, text: str | None = None, *, reader: Reader = NOTEBOOK
) -> Any:
    """Return what the verb of a line returns."""
    options = parse(parser(), line)
    client = cast("Client", master)
    return options.verb.run(
        Call(
            options=options,
            client=client,
            experiment=lambda number: Experiment(client, number),
            text=text,
            reader=reader,
        )
    )
