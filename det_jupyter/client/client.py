"""The master's routes as Python calls."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import quote

from pydantic import TypeAdapter

from det_jupyter.client.documents import FollowedDocument
from det_jupyter.client.requests import make_request
from det_jupyter.connection import Session
from det_jupyter.contract.messages import (
    AddAgent,
    AddCluster,
    AgentCredentials,
    AgentStatus,
    AlertsView,
    AlertTested,
    Capsule,
    ChangeRequest,
    CheckAgents,
    CheckpointView,
    ClusterCheck,
    ClusterStatus,
    ClusterView,
    CodeView,
    CollectedGarbage,
    CollectGarbage,
    ContinueExperiment,
    ContinueTrial,
    CreateExperiment,
    Curve,
    DiskUsage,
    EffectiveConfig,
    ExperimentQuery,
    ExperimentRow,
    ExperimentRows,
    ExperimentView,
    FeedItem,
    FreedRoom,
    ImportanceView,
    ImportedLines,
    ImportedMetrics,
    JobEntry,
    LogPage,
    LogQuery,
    ModelView,
    NumStored,
    PoolStatus,
    PreviewRequest,
    PreviewView,
    Reason,
    RemovedCluster,
    RoomForecast,
    SendTo,
    SeriesPage,
    SeriesQuery,
    SetTemplate,
    TemplateView,
    TimingsView,
    TrackerProgress,
    TrackerState,
    TrackerWork,
    TrialView,
    TryAlerts,
    Wire,
)
from det_jupyter.errors import (
    CaptureError,
    ConfigError,
    Conflict,
    NotFound,
    Problem,
    ProtocolMismatch,
)

Answer = TypeVar("Answer", bound=Wire)

_REFUSALS = (CaptureError, ConfigError, Conflict, NotFound, ProtocolMismatch)


class Client:
    """Sends requests to the master; an error response is raised as the DetError it contains.

    Args:
        session: Of the master.
        watching: For what waits and follows: it does not start a master that was stopped. None:
            `session` does not either.
    """

    def __init__(self, session: Session, watching: Client | None = None) -> None:
        self.session = session
        self.watching = watching or self
        self._unanswered: dict[str, str] = {}  # digest of a request -> its idempotency key

    def create(self, request: CreateExperiment) -> ExperimentView:
        """Submit an experiment.

        The experiment is created once, even if the master is killed meanwhile and the request is
        repeated to its successor. If no response arrives, calling this again with the same request
        returns the experiment that the first call created.
        """
        return self._submit("/experiments", request)

    def _submit(self, path: str, request: CreateExperiment | ContinueTrial) -> ExperimentView:
        submission = f"{path} {request.model_dump_json()}"
        digest = hashlib.sha256(submission.encode()).hexdigest()
        key = self._unanswered.pop(digest, None) or uuid.uuid4().hex
        try:
            return self._again(ExperimentView, path, request.model_copy(update={"key": key}))
        except _REFUSALS:
            raise
        except BaseException:  # an interrupt, too: the experiment may have been created
            self._unanswered[digest] = key
            raise

    def _get(self, kind: type[Answer], path: str, **query: Any) -> Answer:
        return kind.model_validate(self.session.get(path, **query))

    def _get_all(self, kind: type[Answer], path: str, **query: Any) -> list[Answer]:
        return [kind.model_validate(each) for each in self.session.get(path, **query)]

    def _again(self, kind: type[Answer], path: str, request: Wire | None = None) -> Answer:
        answer = self.session.post(path, _body(request), repeatable=True)
        return kind.model_validate(answer)

    def _find_master(self) -> None:
        # If the master has exited since the last request, this connects to its successor; the
        # request that follows must not be sent twice.
        self.session.get("/master")

    def add_agent(self, agent_id: str, address: str = "") -> AgentCredentials:
        """Let an agent on another computer connect; return its credentials.

        Args:
            agent_id: Its name.
            address: Address of the master's computer, as the agent reaches it. "": that on the
                interface of the default route.
        """
        path = f"/agents/{quote(agent_id, safe='')}/credentials"
        return self._again(AgentCredentials, path, AddAgent(address=address))

    def remove_agent(self, agent_id: str) -> None:
        """Refuse an agent of another computer from now on. What runs there ends after 25 s."""
        self.session.delete(f"/agents/{quote(agent_id, safe='')}/credentials")

    def add_cluster(self, config: Mapping[str, Any], pool: str = "") -> ClusterStatus:
        """Make the nodes of a cluster agents.

        Args:
            config: Its settings, as in pools.yaml.
            pool: The pool that gets them, created if necessary; "": the patterns of the pools
                decide.

        Raises:
            ConfigError: The settings are not valid.
            Conflict: The cluster cannot be reached; the message has the reason and the remedy.
        """
        request = make_request(AddCluster, config=dict(config), pool=pool)
        return ClusterStatus.model_validate(self.session.post("/clusters", _body(request)))

    def clusters(self) -> list[ClusterStatus]:
        """Return the clusters whose nodes are agents."""
        return self._get_all(ClusterStatus, "/clusters")

    def remove_cluster(self, name: str) -> RemovedCluster:
        """End a cluster's agents, and disconnect from it. Trials there continue elsewhere."""
        answer = self.session.delete(f"/clusters/{_quoted(name)}")
        return RemovedCluster.model_validate(answer)

    def check_agents(self, folder: str = "") -> ClusterCheck:
        """Measure the connections of agents on other computers, for half a minute at most.

        Args:
            folder: Also check that they have this folder in common with this computer.
        """
        body = make_request(CheckAgents, folder=folder)
        return ClusterCheck.model_validate(self.session.post("/agents/check", _body(body)))

    def reader_problem(self) -> str:
        """Return why the master's readers fail one after the other; "" if they do not."""
        return str(self.session.get("/reader")["problem"])

    def experiments(self) -> list[ExperimentRow]:
        """Return a row for each experiment, oldest first, archived ones too."""
        return self.find(ExperimentQuery(archived=True, sort="oldest")).rows

    def find(self, query: ExperimentQuery) -> ExperimentRows:
        """Return a row for each experiment that matches the query."""
        return self._get(ExperimentRows, "/experiments", **_given(query))

    def experiment(self, experiment_id: int) -> ExperimentView:
        """Return one experiment."""
        return self._get(ExperimentView, f"/experiments/{experiment_id}")

    def change(self, request: ChangeRequest) -> Any:
        """Send a change, and return the response, of the type `request.answer`.

        Raises:
            Conflict: It is not possible in the present state.
            ConfigError: Everything that is wrong with it; nothing has changed.
            NotFound: It names an experiment, trial, agent or pool that does not exist.
        """
        in_path = request.in_path()
        named = {name: _quoted(str(getattr(request, name))) for name in in_path}
        path = request.path.format(**named)
        body = request.model_dump(mode="json", exclude={"kind", *in_path})
        if not request.is_repeatable:
            self._find_master()
        if request.method == "PUT":
            answer = self.session.put(path, body)
        else:
            answer = self.session.post(path, body, repeatable=request.is_repeatable)
        return TypeAdapter(request.answer).validate_python(answer)

    def continue_experiment(
        self, experiment_id: int, request: ContinueExperiment
    ) -> ExperimentView:
        """Continue an experiment that has ended, under its own number."""
        self._find_master()
        path = f"/experiments/{experiment_id}/continue"
        return ExperimentView.model_validate(self.session.post(path, _body(request)))

    def effective_config(self, experiment_id: int) -> EffectiveConfig:
        """Return an experiment's configuration with defaults, and the origin of each value."""
        return self._get(EffectiveConfig, f"/experiments/{experiment_id}/config")

    def preview(self, request: PreviewRequest) -> PreviewView:
        """Return what a search would train; nothing is submitted."""
        return self._again(PreviewView, "/preview", request)

    def importance(self, experiment_id: int) -> ImportanceView:
        """Return the importance of each hyperparameter of a search."""
        return self._get(ImportanceView, f"/experiments/{experiment_id}/importance")

    def trial(self, trial_id: int) -> TrialView:
        """Return one trial."""
        return self._get(TrialView, f"/trials/{trial_id}")

    def add_imported(self, trial_id: int, part: ImportedMetrics | ImportedLines) -> NumStored:
        """Store a part of an imported trial's data; return how many lines of them are stored."""
        what = "logs" if isinstance(part, ImportedLines) else "metrics"
        return self._again(NumStored, f"/trials/{trial_id}/{what}", part)

    def continue_trial(self, trial_id: int, request: ContinueTrial) -> ExperimentView:
        """Train a trial further, as a new experiment; created once, like `create`."""
        return self._submit(f"/trials/{trial_id}/continue", request)

    def reason(self, trial_id: int) -> Reason:
        """Return why a trial does not run."""
        return self._get(Reason, f"/trials/{trial_id}/reason")

    def curves(
        self, experiment_id: int, *, max_points: int | None = None, repeats: bool = False
    ) -> list[Curve]:
        """Return every metric of every trial of an experiment.

        Args:
            experiment_id: The experiment.
            max_points: Thin each curve to about this many points.
            repeats: Return all values of a step, and not only the one that was reported last.
        """
        path, asked = f"/experiments/{experiment_id}/curves", True if repeats else None
        return self._get_all(Curve, path, max_points=max_points, repeats=asked)

    def code(self, experiment_id: int) -> dict[str, str]:
        """Return the captured source of an experiment: cells by label, local modules by path."""
        return self._get(CodeView, f"/experiments/{experiment_id}/code").files

    def capsule(self, experiment_id: int) -> Capsule:
        """Return the captured trial of an experiment, with the names of all of its blobs."""
        return self._get(Capsule, f"/experiments/{experiment_id}/capsule")

    def checkpoints(self, experiment_id: int) -> list[CheckpointView]:
        """Return the checkpoints of an experiment, oldest first."""
        return self._get_all(CheckpointView, f"/experiments/{experiment_id}/checkpoints")

    def checkpoint(self, uuid: str) -> CheckpointView:
        """Return one checkpoint, of any experiment."""
        return self._get(CheckpointView, f"/checkpoints/{_quoted(uuid)}")

    def find_checkpoints(self, pattern: str) -> list[CheckpointView]:
        """Return the checkpoints that a pattern matches, of all experiments, oldest first.

        Args:
            pattern: UUID, EXPERIMENT/UUID or EXPERIMENT/TRIAL/UUID, with `*`, `?` and `[a-f]`.
        """
        return self._get_all(CheckpointView, "/checkpoints", match=pattern)

    def models(self) -> list[ModelView]:
        """Return the models of the registry with their versions, oldest first."""
        return self._get_all(ModelView, "/models")

    def model(self, name: str) -> ModelView:
        """Return one model of the registry."""
        return self._get(ModelView, f"/models/{_quoted(name)}")

    def logs(self, trial_id: int, query: LogQuery) -> LogPage:
        """Return lines that the ranks of a trial printed."""
        return self._get(LogPage, f"/trials/{trial_id}/logs", **_given(query))

    def experiment_logs(
        self, experiment_id: int, query: LogQuery, *, trial_id: int | None = None
    ) -> LogPage:
        """Return lines that the ranks of an experiment, or of one of its trials, printed."""
        path = f"/experiments/{experiment_id}/logs"
        return self._get(LogPage, path, trial_id=trial_id, **_given(query))

    def timings(self, trial_id: int, *, after: int | None = None) -> list[TimingsView]:
        """Return the durations of the parts of a trial's batches, `after` a record's id."""
        return self._get_all(TimingsView, f"/trials/{trial_id}/timings", after=after)

    def series(self, trial_id: int, query: SeriesQuery) -> SeriesPage:
        """Return metrics, timings or system samples of a trial, in at most `columns` points."""
        return self._get(SeriesPage, f"/trials/{trial_id}/series", **_given(query))

    def agent_series(self, agent_id: str, query: SeriesQuery) -> SeriesPage:
        """Return system samples of an agent's machine; each request prolongs the sampling."""
        path = f"/agents/{_quoted(agent_id)}/series"
        return self._get(SeriesPage, path, **_given(query))

    def take_samples(self, agent_id: str) -> None:
        """Let an agent take samples of its machine for half a minute."""
        self.session.post(f"/agents/{_quoted(agent_id)}/samples", repeatable=True)

    def cluster(
        self, *, limit: int | None = None, experiment_id: int | None = None
    ) -> ClusterView:
        """Return all pools, their slots and the front of their queues: `limit` trials of each.

        `limit` trials of `experiment_id` are included too, wherever they are in the queue.
        """
        return self._get(ClusterView, "/cluster", limit=limit, experiment_id=experiment_id)

    def pools(self) -> list[PoolStatus]:
        """Return the pools with their agents."""
        return self.cluster(limit=0).pools

    def agents(self) -> list[AgentStatus]:
        """Return the agents and their slots, pool by pool."""
        return [agent for pool in self.pools() for agent in pool.agents]

    def jobs(self) -> list[JobEntry]:
        """Return the experiments that have not ended, in the order of the queue."""
        return self._get_all(JobEntry, "/jobs")

    def disk_usage(self) -> DiskUsage:
        """Return the disks that are written to, and what uses the space on the master's."""
        return self._get(DiskUsage, "/disks")

    def free_room(self) -> FreedRoom:
        """Delete what nothing refers to: leftovers, old logs, data of deleted experiments."""
        return self._again(FreedRoom, "/disks/free")

    def collect_garbage(self, paths: Sequence[str] = ()) -> CollectedGarbage:
        """Return checkpoints that are not kept, and what crashes have left; see CollectGarbage."""
        request = CollectGarbage(paths=list(paths))
        return self._again(CollectedGarbage, "/checkpoints/gc", request)

    def room_forecast(self, experiment_id: int) -> RoomForecast:
        """Return the forecast whether an experiment's checkpoints will fit on their disk."""
        return self._get(RoomForecast, f"/experiments/{experiment_id}/room")

    def problems(self) -> list[str]:
        """Return the problems of the files that configure the master, such as `pools.yaml`."""
        return [str(problem) for problem in self.session.get("/status")["problems"]]

    def find_impossibility(
        self, slots: int, *, pool: str = "", is_single_agent: bool = False
    ) -> Problem | None:
        """Return why a pool can never run a trial of this size; None: it can, or may later.

        `pool=""` is the default pool.
        """
        answer = self.session.get(
            "/possible", slots=slots, pool=pool, is_single_agent=is_single_agent
        )
        return None if answer["problem"] is None else Problem(**answer["problem"])

    def templates(self) -> list[TemplateView]:
        """Return all templates, sorted by name."""
        return self._get_all(TemplateView, "/templates")

    def template(self, name: str) -> TemplateView:
        """Return one template."""
        return self._get(TemplateView, _template_path(name))

    def set_template(self, name: str, config: Mapping[str, Any]) -> TemplateView:
        """Store a template; one with the same name is replaced."""
        body = make_request(SetTemplate, config=config).model_dump(mode="json")
        return TemplateView.model_validate(self.session.put(_template_path(name), body))

    def delete_template(self, name: str) -> TemplateView:
        """Delete a template, and return it."""
        return TemplateView.model_validate(self.session.delete(_template_path(name)))

    def alerts(self) -> AlertsView:
        """Return the destinations of alerts, and the latest alerts."""
        return self._get(AlertsView, "/alerts")

    def test_alerts(
        self, name: str | None = None, experiment_id: int | None = None
    ) -> list[AlertTested]:
        """Send a test alert to the destinations; return the result for each.

        Args:
            name: Send it only to the destination of this name.
            experiment_id: Send it also to the destinations of this experiment.
        """
        request = TryAlerts(name=name, experiment_id=experiment_id)
        answer = self.session.post("/alerts/test", _body(request))
        return [AlertTested.model_validate(each) for each in answer]

    def send_to(self, experiment_id: int, request: SendTo) -> list[TrackerState]:
        """Send an experiment to trackers; return the progress for each of them.

        Raises:
            ConfigError: Everything that is wrong with the tracker.
            NotFound: No tracker has this name, or there are no trackers.
        """
        answer = self.session.post(
            f"/experiments/{experiment_id}/trackers", _body(request), repeatable=True
        )
        return [TrackerState.model_validate(each) for each in answer]

    def trackers(self, experiment_id: int) -> list[TrackerState]:
        """Return how much of an experiment was sent to each of its trackers."""
        return self._get_all(TrackerState, f"/experiments/{experiment_id}/trackers")

    def tracker_work(self, group: str) -> list[TrackerWork]:
        """Return the experiments that the process of a tracker has to send.

        Raises:
            NotFound: The master has started another process in place of this one.
        """
        return self._get_all(TrackerWork, f"/trackers/work/{group}")

    def advance_tracker(self, number: int, progress: TrackerProgress) -> None:
        """Store how much of an experiment was sent to a tracker, or why sending failed."""
        self.session.put(f"/trackers/{number}", _body(progress))

    def document(self, name: str, **args: Any) -> FollowedDocument:
        """Return a document of the reader, to be followed (contract/messages/pages.py)."""
        return FollowedDocument(self.session, name, **args)

    def items(self, experiment_id: int, *, after: int) -> list[FeedItem]:
        """Return the first feed items of an experiment after the number `after`."""
        return self._get_all(FeedItem, f"/experiments/{experiment_id}/feed", after=after)


def _body(request: Wire | None) -> Any:
    return None if request is None else request.model_dump(mode="json")


def _given(query: Wire) -> dict[str, Any]:
    return query.model_dump(exclude_defaults=True)


def _template_path(name: str) -> str:
    return f"/templates/{_quoted(name)}"


def _quoted(name: str) -> str:
    # Dots too: httpx would resolve a name of dots as a parent folder.
    return quote(name, safe="").replace(".", "%2E")
