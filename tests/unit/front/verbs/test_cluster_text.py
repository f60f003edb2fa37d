"""Slots, queues and jobs as text, at any size and with any names."""

from __future__ import annotations

import csv
import json
from datetime import datetime
from html.parser import HTMLParser
from typing import Any

import pytest

from det_jupyter.client.handles.reasons import reason_page, reason_text
from det_jupyter.contract.messages import DeviceFault, State
from det_jupyter.contract.values.reader import NOTEBOOK
from det_jupyter.front.notebook.handles.slots_and_queue import queue_page, slots_page, tables_page
from det_jupyter.front.verbs.cluster_tables import (
    agents_listing,
    jobs_data,
    jobs_listings,
    pools_listing,
    slots_listing,
    tasks_listing,
)
from det_jupyter.front.verbs.cluster_text import idle_hints, queue_text, slots_text
from det_jupyter.front.verbs.listings import Listing
from tests.unit.front.verbs.cluster_samples import (
    AT,
    SENTENCE,
    agent,
    busy_agent,
    cluster,
    entry,
    held,
    holding,
    job,
    kernel,
    pool,
    reason,
    slot,
)

TODAY = f"{datetime.now():%Y-%m-%d}"


def test_the_ledger_says_who_is_on_every_slot() -> None:
    assert slots_text(cluster(pool(busy_agent(), num_waiting=2)), NOTEBOOK).splitlines() == [
        "Pool default (by priority, with preemption): 8 slots: 2 used, 1 leaving, 1 occupied by "
        "others, 1 disabled, 3 free; 2 trials waiting",
        "  Agent left  ██▓▞x···",
        "    [0]   ████  in use · experiment 3 “resnet” · trial 7, rank 0 · priority 42 "
        "· since 14:02",
        "    [1]   ████  in use, disabled when its trial is over · experiment 3 “resnet” "
        "· trial 7, rank 1 · priority 42 · since 14:02",
        "    [2]   ▓▓▒▒  asked to leave · experiment 3 “resnet” · trial 7, rank 2 · priority 42 "
        "· since 14:02",
        "    [3]   ▞▞▞▞  used by another process · pid 4711, of ann, Jupyter kernel, "
        "notebook eda.ipynb, 14 GB used, idle since 12:00",
        "    [4]   xxxx  disabled",
        "    [5-7] ····  free",
        "",
        "The kernel of eda.ipynb (pid 4711 on agent left) holds 14 GB and has been idle for "
        "2.5 h. Shut it down in Jupyter, or free it with:  !kill 4711",
    ]


@pytest.mark.parametrize(("is_remote", "num_hints"), [(False, 1), (True, 2)])
def test_agents_of_one_computer_share_their_processes(is_remote: bool, num_hints: int) -> None:
    sharing = [
        agent(slot(0, "occupied", processes=[kernel()]), name=name, hostname="box",
              is_remote=is_remote)
        for name in ("left", "right")
    ]  # fmt: skip
    hints = idle_hints(cluster(pool(*sharing)), NOTEBOOK)
    assert len(hints) == num_hints
    apart = [
        agent(slot(0, "occupied", processes=[kernel()]), name=name, is_remote=is_remote)
        for name in ("left", "right")
    ]
    assert len(idle_hints(cluster(pool(*apart)), NOTEBOOK)) == 2


def test_a_lost_slot_says_since_when_why_and_what_to_do() -> None:
    lost = DeviceFault(index=3, at=datetime(2026, 5, 4, 14, 2).timestamp(), xid=79)
    view = cluster(pool(agent(slot(0), slot(1, "lost", lost=lost))))
    said = "GPU 3 has been lost since"
    why = "(Xid 79: it has fallen off the bus)"
    (line,) = [line for line in slots_text(view, NOTEBOOK).splitlines() if "[1]" in line]
    assert line.startswith(f"    [1] !!!!  lost · {said} ")
    assert line.endswith(f"14:02 {why}; reset it or restart the computer")
    assert said in agents_listing(view).text()
    assert f"<b>1</b> lost<br>{lost.cause}</span>" in slots_page(view)
    assert "LOST           GPU 3 is lost (Xid 79" in slots_listing(view).text()


def test_every_pool_and_agent_has_a_line() -> None:
    night = pool(name="night", policy="fair_share", preemption=False)
    gone = agent(slot(0), name="right", connected=False, pool="default")
    here = agent(slot(0), slot(1), hostname="box", num_aux=1)
    assert slots_text(cluster(pool(here, gone), night), NOTEBOOK).splitlines() == [
        "Pool default (by priority, with preemption): 3 slots: 2 free, 1 not connected",
        "  Agent left (on box, 1 trial without slots)  ··  2 slots: 2 free",
        "    [0-1] ····  free",
        "  Agent right (not connected)  ·  1 slot: 1 not connected",
        "Pool night (fair share): no slots",
        "  no agents",
    ]
    assert slots_text(cluster(), NOTEBOOK) == "There is no pool."


def test_the_ranks_of_a_gang_side_by_side_are_one_line() -> None:
    other: dict[str, Any] = {"experiment_id": 4, "trial_id": 8, "allocation_id": "4.8.1"}
    slots = [held(0, 2), held(1, 3), held(2, 0, **other), held(3, 1, processes=[kernel()])]
    assert slots_text(cluster(pool(agent(*slots))), NOTEBOOK).splitlines()[2:5] == [
        "    [0-1] ████  in use · experiment 3 “resnet” · trial 7, ranks 2-3 · priority 42 "
        "· since 14:02",
        "    [2]   ████  in use · experiment 4 “resnet” · trial 8, rank 0 · priority 42 "
        "· since 14:02",
        "    [3]   ████  in use · experiment 3 “resnet” · trial 7, rank 1 · priority 42 "
        "· since 14:02 · pid 4711, of ann, Jupyter kernel, notebook eda.ipynb, 14 GB used, "
        "idle since 12:00",
    ]


def test_many_agents_are_a_line_each_and_then_a_number() -> None:
    agents = [agent(*(held(i, i) for i in range(8)), name=f"a{n}") for n in range(1000)]
    lines = slots_text(cluster(pool(*agents)), NOTEBOOK).splitlines()
    assert len(lines) == 42
    assert lines[1] == "  Agent a0  ████████  8 slots: 8 used"
    assert lines[-1] == "  … and 960 more agents: 7,680 slots: 7,680 used"
    assert len(slots_text(cluster(pool(*agents)), NOTEBOOK, with_all=True).splitlines()) == 2001


def test_an_agent_with_many_slots_is_one_line_of_signs() -> None:
    text = slots_text(cluster(pool(agent(*(slot(i) for i in range(1000))))), NOTEBOOK)
    assert text.splitlines()[1:] == [f"  Agent left  {'·' * 64}…"]


def test_only_idle_kernels_are_pointed_out_and_each_once() -> None:
    busy = kernel(pid=1, idle_since=None)
    script = kernel(pid=2, kernel_id=None, notebook=None, command="train.py", user="")
    nameless = kernel(pid=3, notebook=None)
    slots = [slot(i, "occupied", processes=[busy, script, nameless]) for i in range(2)]
    lines = slots_text(cluster(pool(agent(*slots))), NOTEBOOK).splitlines()
    assert [line for line in lines if "!kill" in line] == [
        "The kernel of an unknown notebook (pid 3 on agent left) holds 14 GB and has been idle "
        "for 2.5 h. Shut it down in Jupyter, or free it with:  !kill 3"
    ]
    assert "pid 2, train.py, 14 GB used, idle since 12:00" in lines[2]


@pytest.mark.parametrize("changes", [{"hostname": "elsewhere"}, {"is_remote": True}])
def test_a_line_to_type_ends_no_process_of_another_computer(changes: dict[str, Any]) -> None:
    elsewhere = agent(slot(0, "occupied", processes=[kernel(pid=3)]), **changes)
    text = slots_text(cluster(pool(elsewhere)), NOTEBOOK)
    assert text.endswith("has been idle for 2.5 h. Shut it down in Jupyter.")


def test_names_stay_on_one_line_and_short() -> None:
    name = "<b>a</b>\n\x1b[31m" + "x" * 100
    named = agent(held(0, 0, experiment_name=name), name="left\nright")
    waiting = entry(experiment_name=name)
    view = cluster(pool(named, num_waiting=1), queue=(waiting,))
    assert len(slots_text(view, NOTEBOOK).splitlines()) == 3
    assert "“<b>a</b> xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…”" in slots_text(view, NOTEBOOK)
    assert len(queue_text(view).splitlines()) == 3
    for page in (slots_page(view), queue_page(view)):
        assert "<b>a</b>" not in page


def test_the_queue_is_in_order_with_a_sentence_for_each() -> None:
    other = entry(11, 1, slots=1, experiment_id=6)
    view = cluster(pool(num_waiting=95), queue=(entry(9), other))
    assert queue_text(view).splitlines() == [
        "Pool default (by priority, with preemption): no slots; 95 trials waiting",
        "  1. trial 9 of experiment 5 “vgg” · 4 slots · priority 42 · since 14:29",
        f"     {SENTENCE}",
        "  2. trial 11 of experiment 6 “vgg” · 1 slot · priority 42 · since 14:29",
        f"     {SENTENCE}",
        "  … and 93 more",
    ]
    assert queue_text(cluster(pool())) == "No trial waits for slots."


def test_trials_of_a_search_one_behind_the_other_are_told_together() -> None:
    search = [entry(9 + i, i) for i in range(20)]
    queue = (*search, entry(40, 20, experiment_id=6))
    view = cluster(pool(num_waiting=21), queue=queue)
    assert queue_text(view).splitlines()[1:] == [
        "  1. trial 9 of experiment 5 “vgg” · 4 slots · priority 42 · since 14:29",
        f"     {SENTENCE}",
        "  2-20. 19 more trials of experiment 5, up to trial 28",
        "  21. trial 40 of experiment 6 “vgg” · 4 slots · priority 42 · since 14:29",
        f"     {SENTENCE}",
    ]
    assert '<li value="2">19 more trials of experiment 5' in queue_page(view)
    tasks = tasks_listing(cluster(pool(num_waiting=20), queue=search))
    assert (tasks.text().count(SENTENCE), tasks.csv().count(SENTENCE)) == (1, 20)


def test_a_reason_is_a_sentence_and_what_to_type() -> None:
    assert reason_text(reason(), NOTEBOOK).splitlines() == [
        f"Trial 9: {SENTENCE}",
        "  What would start it:",
        "    • wait until experiment 3 ends",
        "    • let experiment 5 go first",
        "        %det_experiment set 5 --priority 10",
    ]
    assert reason_text(
        reason(remedies=[], why_unknown="trial 7 has not reported progress"), NOTEBOOK
    ) == (
        f"Trial 9: {SENTENCE}\n  When it starts is not known: trial 7 has not reported progress."
    )


def test_what_ends_a_trial_that_leaves_is_not_said_to_start_it() -> None:
    leaving = reason(cause="leaving")
    assert "  What would end it now:" in reason_text(leaving, NOTEBOOK).splitlines()
    assert "What would end it now:" in reason_page(leaving)


def test_slots_are_a_table_with_determineds_columns() -> None:
    table = slots_listing(cluster(pool(busy_agent())))
    assert list(table.header) == [
        "Agent ID", "Resource Pool", "Slot ID", "Enabled", "Draining", "Allocation ID",
        "Task Name", "Type", "Device",
    ]  # fmt: skip
    assert [row[2:7] for row in table.rows] == [
        (0, True, False, "3.7.1", "Trial 7 (Experiment 3)"),
        (1, False, True, "3.7.1", "Trial 7 (Experiment 3)"),
        (2, True, False, "3.7.1", "Trial 7 (Experiment 3) (leaving)"),
        (3, True, False, "OCCUPIED", "pid 4711 python -m ipykernel_launcher -f kernel-abc.json"),
        (4, False, False, None, None),
        (5, True, False, "FREE", None),
        (6, True, False, "FREE", None),
        (7, True, False, "FREE", None),
    ]
    lines = table.text().splitlines()
    assert lines[4].split()[2:6] == ["3", "true", "false", "OCCUPIED"]
    assert (
        "pid 4711 python -m ipykernel_launcher -…  cuda" in lines[4]
    )  # shortened in the text form
    assert lines[5].split()[2:] == ["4", "false", "false", "-", "-", "cuda", "H100"]


def test_agents_tasks_jobs_and_pools_are_tables() -> None:
    busy = pool(busy_agent(), num_waiting=1)
    assert agents_listing(cluster(busy)).text().splitlines()[1].split() == [
        "left", "left", "-", "connected", "default", "true", "true", "true", "8", "3", "3", "-",
        "██▓▞x···",
    ]  # fmt: skip
    waits = entry(experiment_id=3, queued_at=AT)
    tasks = cluster(busy, holding=[holding()], queue=[waits])
    assert tasks_listing(tasks).text().splitlines() == [
        "Task ID  Allocation ID  Name                    Slots Needed  Registered Time      "
        "Agent       Priority  Resource Pool  Ports",
        "7        3.7.1          Trial 7 (Experiment 3)  4             "
        f"{TODAY} 14:30:00  left        42        default        -",
        "9        5.9.1          Trial 9 (Experiment 3)  4             "
        f"{TODAY} 14:30:00  unassigned  42        default        -",
        f"    {SENTENCE}",
    ]
    longer = tasks_listing(cluster(pool(num_waiting=30), queue=[waits]))
    assert longer.text().splitlines()[-1] == "… and 29 more"
    (jobs,) = jobs_listings([job(), job(5, num_running=0, jobs_ahead=1)], [busy], "ann")
    assert jobs.text().splitlines() == [
        "#  ID  Type        Job Name  Priority  Submitted            Slots (acquired/needed)  "
        "State      User",
        f"0  3   EXPERIMENT  resnet    42        {TODAY} 14:30:00  4/4                      "
        "SCHEDULED  ann",
        f"1  5   EXPERIMENT  resnet    42        {TODAY} 14:30:00  4/4                      "
        "QUEUED     ann",
    ]
    assert pools_listing([busy]).text().splitlines()[1].split() == [
        "default", "priority", "true", "42", "1", "8", "3", "1", "-",
    ]  # fmt: skip


def test_agents_elsewhere_are_listed_with_their_computer_and_when_they_left() -> None:
    elsewhere = {"is_remote": True, "versions": {"torch": "2.9.1", "python": "3.11.7"}}
    near = agent(slot(0), name="b", hostname="node-b", address="10.0.0.2", **elsewhere)
    away = agent(slot(0), name="c", connected=False, left_at=AT - 60, **elsewhere)
    lost = agent(
        name="d", hostname="node-d", connected=False, left_at=AT - 1800, num_left_slots=8,
        **elsewhere,
    )  # fmt: skip
    view = cluster(pool(near, away, lost=[lost]))
    rows = json.loads(agents_listing(view).json())
    assert [(row["Agent ID"], row["Hostname"], row["State"]) for row in rows] == [
        ("b", "node-b", "connected"),
        ("c", "c", "not connected since 14:29"),
        ("d", "node-d", "left at 14:00"),
    ]
    assert "Cluster" not in rows[0]
    on_node = agent(slot(0), name="e", cluster="night", node="node-0123456789" * 9)
    mixed = json.loads(agents_listing(cluster(pool(near, on_node))).json())
    assert [row["Cluster"] for row in mixed] == [None, "night"]
    assert mixed[0]["Node"] is None
    assert "node-0123456789".startswith(mixed[1]["Node"])
    assert rows[0]["Address"] == "10.0.0.2"
    assert rows[0]["Versions"] == "python 3.11.7, torch 2.9.1"
    assert [row["Slots"] for row in rows] == [1, 1, 0]
    assert "  Agent d (left at 14:00, on node-d, had 8 slots)" in slots_text(view, NOTEBOOK)


def test_jobs_of_several_pools_are_several_tables_and_shares_have_weights() -> None:
    night = pool(name="night", policy="fair_share")
    sleeping = job(5, pool="night", jobs_ahead=None, weight=2.5, state=State.PAUSED)
    first, second = jobs_listings([job(), sleeping], [pool(), night], "ann")
    assert (first.title, second.title) == ("Pool default", "Pool night")
    assert second.header[4] == "Weight"
    assert second.rows[0][:5] == (None, 5, "EXPERIMENT", "resnet", 2.5)
    assert second.rows[0][7] == "PAUSED"
    (only,) = jobs_listings([job(), sleeping], [pool(), night], "ann", "night")
    assert only.rows == second.rows


def test_a_pool_without_priorities_has_none_in_the_table_of_tasks() -> None:
    (row,) = tasks_listing(cluster(pool(policy="round_robin"), holding=[holding()])).rows
    assert row[6] is None


def test_programs_get_one_document_with_numbers_as_numbers() -> None:
    night = job(5, pool="night", jobs_ahead=None, weight=2.5, slots_held=0, name="n" * 60)
    data = jobs_data([job(), night], "ann")
    first, second = json.loads(data.json())
    assert first == {
        "#": 0, "ID": 3, "Type": "EXPERIMENT", "Job Name": "resnet", "Priority": 42,
        "Weight": 1.0, "Submitted": f"{TODAY} 14:30:00", "Slots Acquired": 4, "Slots Needed": 4,
        "State": "SCHEDULED", "User": "ann", "Resource Pool": "default",
    }  # fmt: skip
    assert (second["#"], second["Weight"], second["Resource Pool"]) == (None, 2.5, "night")
    assert second["Job Name"] == "n" * 60  # whole
    assert [row[1] for row in csv.reader(data.csv().splitlines())] == ["ID", "3", "5"]
    assert [row["ID"] for row in json.loads(jobs_data([job(), night], "ann", "night").json())] == [
        5
    ]
    assert jobs_data([], "ann").text() == "No experiment runs or waits.", "as det job --reverse"
    agents = json.loads(agents_listing(cluster(pool(busy_agent()))).json())
    assert agents == [
        {"Agent ID": "left", "Hostname": "left", "Address": None, "State": "connected",
         "Resource Pool": "default", "Connected": True, "Enabled": True, "Draining": True,
         "Slots": 8, "Used": 3, "Free": 3, "Versions": None}
    ]  # fmt: skip
    slots = slots_listing(cluster(pool(busy_agent()))).csv().splitlines()
    assert slots[5] == "left,default,4,false,false,,,cuda,H100"
    (runs,) = json.loads(tasks_listing(cluster(pool(), holding=[holding()])).json())
    assert (runs["Task ID"], runs["Priority"], runs["Waits For"]) == (7, 42, None)
    (shown,) = json.loads(pools_listing([pool(num_waiting=3)]).json())
    assert (shown["Preemption"], shown["Waiting"], shown["Description"]) == (True, 3, None)


@pytest.mark.parametrize(
    ("num", "lines", "last"),
    [
        (0, 1, "nothing"),
        (1, 2, "0"),
        (50, 51, "49"),
        (1000, 52, "… and 950 more; --all lists more"),
    ],
)
def test_tables_show_the_front_and_count_the_rest(num: int, lines: int, last: str) -> None:
    table = Listing(header=("n",), rows=[(str(i),) for i in range(num)], if_empty="nothing")
    assert len(table.text().splitlines()) == lines
    assert table.text().splitlines()[-1] == last
    assert table.text(None) == table.text() or num == 1000
    assert json.loads(table.json()) == [{"n": str(i)} for i in range(num)]
    assert len(table.csv().splitlines()) == num + 1


class Tags(HTMLParser):
    """Checks that every tag is closed, and collects the names of all."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_pages_are_whole_and_have_no_scripts() -> None:
    view = cluster(pool(busy_agent(), num_waiting=3), queue=(entry(),))
    agents = [agent(*(held(i, i) for i in range(8)), name=f"a{n}") for n in range(1000)]
    told = slots_page(view, ["Note: <pools.yaml>"])
    assert told.endswith("<p>Note: &lt;pools.yaml&gt;</p></div>")
    tables = [slots_listing(view), *jobs_listings([], [pool()], "ann")]
    pages = [slots_page(view), slots_page(cluster(pool(*agents))), slots_page(cluster()),
             queue_page(view), queue_page(cluster()), tables_page(tables, 3),
             reason_page(reason())]  # fmt: skip
    allowed = {"div", "p", "b", "i", "span", "br", "code", "ol", "ul", "li", "table", "thead",
               "tbody", "tr", "th", "td"}  # fmt: skip
    for page in pages:
        tags = Tags()
        tags.feed(page)
        assert not tags.open
        assert tags.seen <= allowed
    assert len(pages[1]) < 20_000
    assert "occupied" in pages[0]  # a word, not only a colour


def test_a_page_names_what_a_box_stands_for() -> None:
    page = slots_page(cluster(pool(busy_agent())))
    assert "slot 0 (H100): in use · experiment 3 “resnet” · trial 7, rank 0" in page
    assert "<b>0</b> used<br>exp 3 trial 7" in page
    assert "<b>3</b> occupied<br>eda.ipynb" in page


def test_a_time_that_is_not_today_has_its_date() -> None:
    text = slots_text(cluster(pool(agent(held(0, 0, since=AT - 86_400 * 3)))), NOTEBOOK)
    day = datetime.fromtimestamp(AT - 86_400 * 3)
    assert f"since {day:%b} {day.day}, 14:30" in text


def test_each_pool_lists_its_own_queue() -> None:
    pools = [pool(name=name, num_waiting=1) for name in ("default", "night")]
    queue = (entry(8, experiment_id=4), entry(9, pool="night"))
    view = cluster(*pools, queue=queue)
    heads = [line for line in queue_text(view).splitlines() if not line.startswith("     ")]
    assert [line.split()[:3] for line in heads] == [
        ["Pool", "default", "(by"],
        ["1.", "trial", "8"],
        ["Pool", "night", "(by"],
        ["1.", "trial", "9"],
    ]
    first, second = queue_page(view).split("<b>Pool night")
    assert ("trial 8" in first, "trial 9" in first) == (True, False)
    assert ("trial 8" in second, "trial 9" in second) == (False, True)


def test_what_the_first_trial_of_all_waits_for_is_said() -> None:
    waits = entry(8, experiment_id=1)
    assert list(tasks_listing(cluster(pool(num_waiting=1), queue=[waits])).below) == [SENTENCE]
