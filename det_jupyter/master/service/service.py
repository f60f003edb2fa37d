"""The loop around the machine: events are handled and committed, then commands are carried out.

    users, agents, timers ──► Service ──► Transaction: machine and store ──► commands

Transactions do not overlap, because nothing is awaited between BEGIN and COMMIT.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import sqlite3
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import assert_never

from det_jupyter.contract.host.disk_space import is_no_room
from det_jupyter.contract.messages import (
    AgentReports,
    CreateExperiment,
    DisksSeen,
    ExperimentView,
    GangExited,
    ImportedLines,
    ImportedMetrics,
    NumStored,
    Offsets,
    OtherVersion,
    RegisterAgent,
    StartGang,
    SystemSampled,
)
from det_jupyter.contract.schema.seeds import MAX_SEED
from det_jupyter.errors import Conflict, DetError, MasterUnreachable
from det_jupyter.master.machine.model.commands import (
    ConsultSampler,
    DeleteCheckpoints,
    DeleteExperiment,
    Deletion,
    ToAgent,
)
from det_jupyter.master.machine.model.events import (
    AgentRegistered,
    Event,
    ExperimentSubmitted,
    Request,
)
from det_jupyter.master.machine.rules.configurations import resolve_config
from det_jupyter.master.sampling.samplers import check_sampler
from det_jupyter.master.service.address_checks import check_services
from det_jupyter.master.service.agents.agent_access import AgentAccess
from det_jupyter.master.service.agents.agent_admission import AgentAdmission
from det_jupyter.master.service.agents.agent_clock import AgentClock, faults_on_master_clock
from det_jupyter.master.service.agents.cluster_nodes import ClusterNodes
from det_jupyter.master.service.agents.gang_links import end_unstarted, with_link
from det_jupyter.master.service.agents.links import AgentLinks
from det_jupyter.master.service.committing.reserve import Reserve
from det_jupyter.master.service.committing.restoring import restore_machine
from det_jupyter.master.service.committing.transaction import Transaction
from det_jupyter.master.service.current_views import Views
from det_jupyter.master.service.disks import Disks
from det_jupyter.master.service.reports.imported_parts import store_lines, store_metrics
from det_jupyter.master.service.reports.ingest import store_reports, stored_offsets
from det_jupyter.master.service.reports.run_verdicts import RunVerdicts
from det_jupyter.master.service.reports.unmanaged_runs import UnmanagedRuns
from det_jupyter.master.service.storing.facts import HostFacts
from det_jupyter.master.service.storing.feed import CommitSignal, Mark
from det_jupyter.master.service.storing.log_patterns import Matcher, check_patterns
from det_jupyter.master.service.storing.quarantine import is_system_error
from det_jupyter.master.service.storing.store import Store

logger = logging.getLogger(__name__)


class Service:
    """The master without its HTTP interface; it starts from the stored state.

    Raises:
        DetError: A file with data of agents on other computers is damaged.
    """

    def __init__(self, store: Store, *, clock: Callable[[], float] = time.time) -> None:
        self.store = store
        self.access = AgentAccess(store.path.parent / "agents")
        self.links = AgentLinks()
        self.nodes = ClusterNodes()
        self.commits = CommitSignal()
        self.questions: asyncio.Queue[ConsultSampler] = asyncio.Queue()  # for consult.py
        self.alert_raised = asyncio.Event()  # for delivery/alerts.py
        self.deletions: asyncio.Queue[Deletion] = asyncio.Queue()  # for deleting.py
        self.machine = restore_machine(store)
        self.disks = Disks()
        self.views = Views(self.machine, store, clock, self.links.is_connected)
        self.is_leaving = False  # refuses further experiments
        self.default_storage = ""  # folder that replaces a storage that cannot be used
        self.reserve = Reserve(store.path.parent)
        self.admission = AgentAdmission(self.machine, self.links)
        self.unmanaged = UnmanagedRuns(self.machine, self.links)
        self.engine_problem = ""  # why no agent of this computer can be started
        self.listener_problem = ""  # why agents of other computers cannot connect
        self.reader_problem = ""  # why no reader lasts
        self.file_problems: list[str] = []  # problems of the files that users write (pools.yaml)
        self._agent_clocks: defaultdict[str, AgentClock] = defaultdict(AgentClock)
        self._clock = clock
        self._matcher = Matcher()
        self._run_verdicts = RunVerdicts()
        with self._transaction() as transaction:
            transaction.end_unreadable_experiments()
        self._act(transaction)

    # changes

    def apply(self, request: Request) -> None:
        """Handle a user's request: commit it, then carry out the commands.

        Raises:
            DetError: The request is refused, or the machine has failed at it; nothing has changed.
        """
        transaction = self._with_reserve(lambda transaction: transaction.request(request))
        self._act(transaction)

    def take(self, event: Event) -> None:
        """Handle an event from a program; an event that fails is set aside (transaction.py)."""
        self._act(self._with_reserve(lambda transaction: transaction.take(event)))

    def add_imported(self, trial_id: int, part: ImportedMetrics | ImportedLines) -> NumStored:
        """Store a part of an imported trial's metrics or printed lines (imported_parts.py)."""
        with self._transaction() as transaction:
            if isinstance(part, ImportedLines):
                return store_lines(transaction, trial_id, part)
            return store_metrics(transaction, trial_id, part)

    def store_facts(self) -> None:
        """Store and announce changed facts about clusters and disks; errors are only logged."""
        facts = HostFacts(
            cluster_notes={name: note for name, note in self.nodes.notes.items() if note},
            disks=self.disks.warnings(self._clock()),
        )
        if facts.rounded != self.store.facts.get().rounded:

            def handle(transaction: Transaction) -> None:
                self.store.facts.set(facts)
                transaction.store.feed.mark("cluster", transaction.now)

            try:
                self._with_reserve(handle)
            except Exception:  # a full disk, for example; it is tried again
                logger.exception("facts could not be stored")

    def announce(self, kind: Mark, experiment_id: int = 0) -> None:
        """Mark that something has changed outside of the machine's state."""
        self._with_reserve(lambda each: each.store.feed.mark(kind, each.now, experiment_id))

    def _with_reserve(self, handle: Callable[[Transaction], object]) -> Transaction:
        """Return the transaction in which `handle` was called.

        If the disk is full, the reserve is removed, and the transaction is repeated.
        """
        try:
            with self._transaction() as transaction:
                handle(transaction)
        except (OSError, sqlite3.Error) as error:
            if not is_no_room(error) or not self.reserve.give_back():
                raise
            with self._transaction() as transaction:
                handle(transaction)
        return transaction

    @contextmanager
    def _transaction(self, *, is_careful: bool = True) -> Iterator[Transaction]:
        transaction = Transaction(
            self.machine,
            self.store,
            self._clock(),
            self._matcher,
            is_careful=is_careful,
        )
        try:
            with self.store.transaction():
                yield transaction
                transaction.mark_moved()
        except BaseException:  # an interrupt too: nothing was committed
            if transaction.is_machine_ahead:
                self.machine.take_over(restore_machine(self.store))
            raise
        self.commits.notify()
        if transaction.has_alerts:
            self.alert_raised.set()

    def _act(self, transaction: Transaction) -> None:
        state, now = self.machine.state, transaction.now
        unstarted: list[GangExited] = []
        for command in transaction.commands:
            match command:
                case ToAgent(agent_id=agent_id, command=order, cause=cause):
                    logger.info("event %d: %s to agent %s", cause, order.kind, agent_id)
                    try:
                        self.links.send(agent_id, with_link(order, agent_id, state, self.access))
                    except (DetError, OSError) as error:
                        logger.error("agent %s was not sent %s: %s", agent_id, order.kind, error)
                        assert isinstance(order, StartGang)
                        unstarted.append(end_unstarted(order, agent_id, state, now, error))
                case ConsultSampler():
                    self.questions.put_nowait(command)
                case DeleteCheckpoints() | DeleteExperiment():
                    self.deletions.put_nowait(command)
                case _:
                    assert_never(command)

        for end in unstarted:
            self.take(end)

    async def submit(self, request: CreateExperiment) -> ExperimentView:
        """Create an experiment, or return the one that was submitted with this key.

        Raises:
            ConfigError: The configuration is not valid, or no agent can ever run it.
            MasterUnreachable: The master is about to exit; the next one accepts the experiment.
        """
        if (known := self.submitted(request.key)) is not None:
            return known
        addresses = self.store.addresses
        config, origins = resolve_config(
            addresses.hide(request.config),
            self.store.template(request.template).config if request.template else None,
            default_seed=secrets.randbelow(MAX_SEED + 1),
            storage=self.default_storage,
        )
        capsule = request.capsule
        if request.parent_id is not None:  # a fork uses its parent's capsule, which views shorten
            capsule = self.machine.state.experiment(request.parent_id).capsule
        await check_services(addresses, config, capsule, self.machine.state)
        await check_patterns(config)
        await check_sampler(config)
        await self.links.wait_for_first()
        # The request was sent twice, and both have waited.
        if (known := self.submitted(request.key)) is not None:
            return known
        if self.is_leaving:
            raise MasterUnreachable("the master is stopping; submit again in a moment")
        submitted = ExperimentSubmitted.built_from(
            request, config=config.to_document(), origins=origins, capsule=capsule
        )
        self.apply(submitted.with_settings(config))
        return self.views.experiment(self.machine.state.last_experiment_id)

    def submitted(self, key: str) -> ExperimentView | None:
        """Return the experiment that was submitted with this key, if there is one."""
        found = self.machine.indexes.find_submitted(key)
        return None if found is None else self.views.experiment(found)

    # agents

    def register(
        self,
        agent_id: str,
        registration: RegisterAgent | OtherVersion,
        *,
        is_remote: bool = False,
        peer: str = "",
    ) -> Offsets:
        """Register an agent; return how many bytes of its runs' files are stored.

        Args:
            agent_id: The agent's name.
            registration: The registration that it has sent.
            is_remote: Whether it is on another computer, which the listener that it uses shows.
            peer: The address that it has connected from, where other agents reach it unless it has
                sent another address.

        Raises:
            ProtocolMismatch: The agent has another version, or another Python or torch.
            Conflict: The master has failed at the registration, or another process of this name
                may still run trials.
        """
        registration = self.admission.check(agent_id, registration, is_remote=is_remote)
        clock, now = self._agent_clocks[agent_id], self._clock()
        clock.measured(
            registration.session, registration.clock_ahead_s, registration.booted_at, now
        )
        cluster, node = self.nodes.place_of(agent_id, self.machine.state, self.access)
        with self._transaction() as transaction:
            is_taken = transaction.take(
                AgentRegistered.built_from(
                    registration,
                    agent_id=agent_id,
                    lost=faults_on_master_clock(registration.lost, clock.at(now)),
                    is_remote=is_remote,
                    address=(registration.address or peer) if is_remote else "",
                    cluster=cluster,
                    node=node,
                )
            )
        if not is_taken:
            raise Conflict(f"the master failed to take agent {agent_id} on; see master.log")
        self.links.open(agent_id, registration.session)
        self._act(transaction)
        runs = (run.allocation_id for run in registration.runs)
        return Offsets(offsets={run: stored_offsets(transaction, agent_id, run) for run in runs})

    def clock_ahead_s(self, agent_id: str) -> float:
        """Return the seconds by which the clock of an agent's computer is ahead of this one's."""
        return self._agent_clocks[agent_id].ahead_s

    def take_reports(self, agent_id: str, reports: AgentReports) -> Offsets:
        """Store the reports of an agent; when this returns, they are committed.

        Raises:
            Conflict: The agent process is not the registered one.
        """
        self.links.get(agent_id, reports.session)
        return self.take_reports_of(agent_id, reports)

    def take_reports_of(self, agent_id: str, reports: AgentReports) -> Offsets:
        """Store reports; no agent has to be registered by this name."""
        self._agent_clocks[agent_id].see(reports.booted_at, self._clock())
        for report in reports.reports:
            if isinstance(report, DisksSeen):
                self.disks.add_of_agent(agent_id, self._clock(), report.disks)
        if self.disks.is_full(str(self.store.path.parent)):  # the remaining space is for requests
            kept = [each for each in reports.reports if not isinstance(each, SystemSampled)]
            reports = reports.model_copy(update={"reports": kept})
        if not reports.reports:  # only a heartbeat
            return Offsets(offsets={})
        try:
            return self._store_reports(agent_id, reports, is_careful=False)
        except Exception as error:  # a report with an error must not fail the others
            if is_no_room(error) and self.reserve.give_back():
                return self._store_reports(agent_id, reports, is_careful=False)
            if is_system_error(error):
                raise
            logger.warning(
                "reports of agent %s are stored one by one, because all together failed: %r",
                agent_id,
                error,
            )
        return self._store_reports(agent_id, reports, is_careful=True)

    def _store_reports(self, agent_id: str, reports: AgentReports, *, is_careful: bool) -> Offsets:
        """Store a batch; if `is_careful`, each report can be undone, but it takes longer."""
        with self._transaction(is_careful=is_careful) as transaction:
            offsets = store_reports(
                transaction,
                agent_id,
                reports.reports,
                self._run_verdicts,
                self._agent_clocks[agent_id],
            )
            self._run_verdicts.publish(transaction)
        self._run_verdicts.committed()
        self._act(transaction)
        return offsets

    @property
    def problems(self) -> list[str]:
        """The problems of files that users write, of agents, and of pools."""
        undecided = [
            f"pool {name}: no waiting trial starts, because the scheduler fails ({error}); what "
            "runs goes on, and each change of the pool is another try; master.log has the "
            "traceback"
            for name, error in self.machine.queue.stuck.items()
        ]
        files = [*self.file_problems, *self.store.addresses.problems]
        programs = (self.engine_problem, self.listener_problem, self.reader_problem)
        return [
            *(f"not followed: {problem}" for problem in files),
            *filter(None, programs),
            *self.store.alerts.problems(),
            *self.store.tracked.problems(),
            *self.admission.problems(),
            *undecided,
        ]

    # the end

    def begin_to_leave(self) -> None:
        """Refuse further experiments, including submissions that wait for an agent."""
        self.is_leaving = True
        self.links.registered.set()  # wakes submissions that wait

    def end_streams(self) -> None:
        """End all streams, so that the server can close its connections."""
        self.links.close()
        self.commits.close()

    def close(self) -> None:
        """Store a snapshot, so that the next start does not have to replay events."""
        try:
            with self.store.transaction():
                self.store.history.add_snapshot(self.machine.state.seq, self.machine.dump())
        except Exception:  # the events are stored
            logger.exception("the master's state could not be stored; it is tried again")
        self.store.close()
