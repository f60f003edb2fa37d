"""Agents on two other computers, in JupyterLab: their state, logs, stacks and consoles."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from det_jupyter.client import Client
from tests.lab.pages import LabPage
from tests.lab.trials import Trials
from tests.nodes import Node, running_nodes
from tests.processes import DetHome


@pytest.fixture
def nodes(home: DetHome, client: Client, tmp_path: Path) -> Iterator[dict[str, Node]]:
    """Agents with homes of their own, which reach the master over TLS."""
    names = ("node-b", "node-c")
    made = [Node(client.add_agent(name, "127.0.0.1"), tmp_path / name) for name in names]
    with running_nodes(home.client(), made) as nodes:
        yield nodes
    for name in names:
        client.remove_agent(name)


@pytest.mark.long
def test_a_trial_on_two_computers_is_seen_and_entered(
    ui: LabPage, trials: Trials, nodes: dict[str, Node]
) -> None:
    experiment = trials.train(name="spread", slots=4, steps=3)
    allocation = experiment.view.trials[0].allocation
    assert allocation is not None
    places = allocation.agent_ids
    rank = 0  # on one of the other computers, as all ranks connect to its agent
    agents = ui.sidebar.open().node.locator(".det-side-agent")
    expect(agents).to_have_count(3)
    for name in set(places):
        expect(agents.filter(has_text=name)).to_contain_text("2 of 2 slots used")
    ui.run("det:open-experiment", experiment_id=experiment.id, tab="logs")
    page = ui.experiment(experiment.id)
    log = page.panel.get_by_role("log")
    expect(log).to_contain_text("trains batch")
    page.panel.get_by_label("Agent").select_option(places[rank])
    page.panel.get_by_label("Rank").select_option(str(rank))
    expect(log).to_contain_text(f"rank {rank}")
    page.tab("Timings").click()
    expect(page.panel.locator(".det-verdict-network")).to_contain_text(f"{places[0]} uses lo")
    page.tab("System").click()
    expect(page.panel).to_contain_text("Trial's network, sent")
    ui.run("det:show-stacks", trial_id=experiment.trials[0].id)
    stacks = ui.page.locator(".jp-DetStacks:visible")
    expect(stacks).to_contain_text(re.compile(r"in (train_batch|_train)"))
    ui.run("det:open-rank-console", trial_id=experiment.trials[0].id, rank=rank)
    console = ui.page.locator(".jp-CodeConsole:visible")
    expect(console.locator(".jp-CodeConsole-banner")).to_contain_text("batch_idx")
    nodes[places[0]].end()
    gone = agents.filter(has_text=places[0])
    expect(gone).to_contain_text("left at")
