"""What lines answer, word for word: the answers are in `answers.txt`.

`python -m tests.unit.front.verbs.test_answers` writes that file anew; read the difference.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import socket
import sys
import tempfile
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path

import pytest

from det_jupyter.contract.messages import PlannedBracket, PreviewView, State
from det_jupyter.contract.values.reader import NOTEBOOK, SHELL
from det_jupyter.contract.values.text import date
from det_jupyter.errors import DetError
from det_jupyter.front.notebook.handles.slots_and_queue import queue_page, slots_page, tables_page
from det_jupyter.front.verbs.cluster_tables import agents_listing, jobs_listings
from det_jupyter.front.verbs.cluster_text import queue_text, slots_text
from det_jupyter.front.verbs.listings import Listing
from det_jupyter.front.verbs.search_preview import render_page, render_text
from det_jupyter.front.verbs.word_completion import words_after
from tests.unit.front.verbs.answers import (
    Answering,
    answer_to,
    busy_cluster,
    parser,
    planned,
    preview_of,
)
from tests.unit.front.verbs.cluster_samples import AT, agent, cluster, held, job, pool, slot
from tests.unit.view.view_samples import CREATED_AT

FILE = Path(__file__).with_name("answers.txt")
CELL = "searcher: {name: single, metric: error, max_length: {epochs: 1}}\nentrypoint: T\n"
LINES = """
e trials 7
e trials 8
e trials 7 --json
e trials 7 --csv --sort-by accuracy --limit 2
e trials 7 -q --reverse
e config 7
e describe 7
e describe 7 --metrics
e describe 7 --csv
e describe 7 --json
e describe 7 --outdir OUT
t describe 1 --metrics-summary
t describe 1 --limit 2 --offset 1
t describe 1 --pages 1 --offset 9
e lt 7
e lt 7 --csv
e lt 7 --json
e lc 7
e lc 7 --best 1
e lc 7 --csv
c list 7 --json
c describe uuid-10
c describe uuid-40
c describe uuid-10 --json
c describe uuid-50
c download uuid-10 -o OUT
c download uuid-10 --quiet -o OUT
c download uuid-40 -o OUT
t download 1 -o OUT
t download 1 --latest -o OUT
t download 1 -q -o OUT
t download 1 --best --sort-by error --smaller-is-better false -o OUT
t download 1 --sort-by error -o OUT
t download 1 --sort-by loss --smaller-is-better true -o OUT
t download 2 --uuid uuid-20 -o OUT
t download 2 --uuid uuid-10 -o OUT
t download 3 -o OUT
t download 3 --latest -o OUT
e download 7 -o OUT
e download 7 --top-n 5 -o OUT
e download 7 --top-n 5 --quiet -o OUT
e download 7 --sort-by error --smaller-is-better true -o OUT
e download 7 --sort-by error --smaller-is-better false -o OUT
e download 7 --sort-by error -o OUT
e download 7 --sort-by loss --smaller-is-better true -o OUT
c delete uuid-10,uuid-20 uuid-10 -y
c delete uuid-50 -y
c rm uuid-10 --glob *.pt --glob **/x -y
c rm uuid-10,uuid-20 --glob *.pt
tpl list
tpl list -d
tpl list --csv
tpl list --json
tpl show digits
tpl delete digits
tpl set x < max_restarts: 2
tpl set x < max_restarts: [
tpl set x < max_restart: 2
tpl set x
tpl create digits < max_restarts: 2
tpl create x < max_restarts: 2
t kill 3
t set 1 --lr 0.5 --priority 3
t set 1 --priority 3
t set 1
t profile 1 --steps 3 --with-stack
e set 7 --name new --priority 3
e set 7
e set 7 --priority 100
e set name 7 new
e set description 7 So
e set weight 7 2
e set pool 7 night
e set priority 7 0
e label add 7 a b
e label rm 7 a
e change 7 --max-trials 5 --max-concurrent 2
e change 7
e pause 7
e code 7
e code 7 --to OUT
e why 7
e verdict 7
why 9
why --experiment 7
e ? searcher.divisor
e ? divisor
e ? searcher.divizor
e ? xyzzy
e ? checkpoint_storage
e compare 7 8 --trials 1
e compare 7
e export 7 --to OUT.csv
e export 7 --to OUT.csv --what timings
e export 7 --to OUT.csv --what system
c delete uuid-10
c delete uuid-10,uuid-20
e delete 7
e delete 7 8
e archive 90
e archive 90 91
e archive 7 90
e archive 3-5
e archive 7-8
e unarchive 7
e logs 9
e logs 9 -f
e logs 9 -f --tail 2
shell: e logs 9 -f
e logs 10 -f
shell: e logs 10 -f
e logs 11
e logs 11 --rank 1
t logs 11
shell: e logs 11
e export 7 --to OUT.txt
e archive 7 8
e delete 7 8 -y
slot disable left 1 --drain
agent enable --all
agent enable
job move 7 --ahead-of 3
job update 7 --priority 3
job update-batch 7.priority=3 8.weight=2
e download-model-def 7 -o OUT
e
e --all
e list a b --name x --label good --state running,paused --sort metric --limit 5 --offset 1
e --csv
e --json
e list --since yesterday
shell: e
shell: e --csv
shell: e --json
e --yaml
e --quiet
e --sort-by id --limit 1
shell: e --yaml --pages 1
shell: e --sort-by progress --reverse --limit 2 --quiet
e list --all --limit 1
slot --quiet --limit 3
slot --offset 99
agent --limit 0
agent --sort-by host --reverse
agent --sort-by slots --yaml --limit 2
task --limit 1 --offset 1
job --sort-by priority --reverse --limit 2
pool --pages 1 -q
pool --sort-by colour
e lt 7 --sort-by "# of batches" --limit 2
e lc 7 --sort-by validation_metric -q
tpl list --yaml
slots
slots -a
slot
slot --csv
slot --json
agent
agent --json
task
task --csv
job
job -p night
job --csv
job --json
job -p x
pool
pool --csv
queue
queue -a
e logs 7
e logs 7 --tail 2
e logs 7 --tail 0
e logs 7 --head 3
e logs 7 --json --tail 1
e logs 7 --until 2000-01-01
e logs 7 --allocation-id 7.1.2
e logs 7 --allocation-id 7.1
e logs 7 --trial 1 --rank 1 --level error --search x
e logs 7 -f
e logs 7 -f --json
t logs 1 --tail 4
shell: e logs 7
shell: e logs 7 --head 1
shell: e logs 7 --until 2000-01-01
shell: e logs 7 --tail 2
shell: t logs 1 --until 2000-01-01 --tail 3
shell: e logs 7 -f
preview-search --seconds-per-batch 0.5 < CELL
preview-search < searcher: {name: asha}
""".strip().splitlines()
TYPED = (
    "", "e", "e 7", "e pause", "e set", "e set 7", "e logs 7 --level", "slot disable", "e nope",
    "job move 5 --ahead-of", "why", "why 9", "template show", "e ?", "job list --pool",
    "a enable", "t set 9 --lr", "e label", "e fork 7 --trial",
)  # fmt: skip
HUGE = [agent(*(slot(i) for i in range(80)), name="big"), agent(held(0, 0), name="small")]
MANY = [agent(held(0, 0), slot(1), name=f"a{i}") for i in range(45)]
PAGES: dict[str, Callable[[], str]] = {
    "text of a preview": lambda: render_text(preview_of(), AT),
    "text of a short preview": lambda: render_text(short_preview(), AT),
    "page of a preview": lambda: render_page(preview_of(), AT),
    "page of a short preview": lambda: render_page(short_preview(), AT),
    "page of slots": lambda: slots_page(busy_cluster(), ["a <note>"]),
    "page of no slots": lambda: slots_page(cluster()),
    "page of many slots": lambda: slots_page(cluster(pool(*HUGE))),
    "page of many agents": lambda: slots_page(cluster(pool(*MANY)))[-400:],
    "page of a queue": lambda: queue_page(busy_cluster()),
    "page of no queue": lambda: queue_page(cluster()),
    "page of tables": lambda: tables_page(
        [agents_listing(busy_cluster()), agents_listing(cluster()), *_jobs()], 2
    ),
    "text of no slots": lambda: slots_text(cluster(), NOTEBOOK),
    "text of many slots": lambda: slots_text(cluster(pool(*HUGE)), NOTEBOOK),
    "text of all of many slots": lambda: slots_text(cluster(pool(*HUGE)), NOTEBOOK, with_all=True),
    "text of many agents": lambda: slots_text(cluster(pool(*MANY)), NOTEBOOK)[-300:],
    "text of a pool without agents": lambda: slots_text(cluster(pool(name="night")), NOTEBOOK),
    "text of 64 slots": lambda: slots_text(cluster(pool(agent(*map(slot, range(64))))), NOTEBOOK),
    "page of 64 slots": lambda: slots_page(cluster(pool(agent(*map(slot, range(64))))))[-90:],
    "page of a preview with many": lambda: render_page(many_preview(), AT),
    "words": lambda: "\n".join(f"{line}: {' '.join(words(line))}" for line in TYPED),
    "text of no queue": lambda: queue_text(cluster()),
}


def words(line: str) -> list[str]:
    """Return the words that may follow those of a line."""
    kinds = ("experiments", "trials", "templates", "keys", "agents", "pools")
    return words_after(parser(), line.split(), {kind: partial(_of_kind, kind) for kind in kinds})


def _of_kind(kind: str) -> list[str]:
    return [f"<{kind}>"]


def many_preview() -> PreviewView:
    """Return the preview of a search in many brackets, of which few trials go far."""
    bracket = PlannedBracket(trials=planned(b10=1000, b1000=1))
    return preview_of(brackets=[bracket] * 9, notices=["a notice"])


def short_preview() -> PreviewView:
    """Return the preview of a search in one bracket, without a pace."""
    whole = planned(b1000=4)
    return preview_of(
        searcher="random", trials=whole, brackets=[PlannedBracket(trials=whole)],
        expected=4000.0, least=4000.0, most=4000.0, pace=None, ranges=[],
        no_pace="none has trained",
    )  # fmt: skip


def _jobs() -> Sequence[Listing]:
    jobs = [job(), job(4, state=State.PAUSED), job(5, num_running=0), job(6, pool="night")]
    return jobs_listings(jobs, [pool(), pool(name="night", policy="fair_share")], "ann")


def said(line: str, folder: Path) -> str:
    """Return what a line prints and answers, and what it asked the master for."""
    master = Answering(folder)
    words, _, text = line.removeprefix("shell: ").partition(" < ")
    words = words.replace("OUT", str(folder / "out"))
    text = CELL if text == "CELL" else text
    out, err = io.StringIO(), io.StringIO()
    stdin, sys.stdin = sys.stdin, io.StringIO("n\n")  # to what is asked
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            answer = answer_to(
                master,
                words,
                text or None,
                reader=SHELL if line.startswith("shell: ") else NOTEBOOK,
            )
        except (DetError, KeyboardInterrupt) as error:
            answer = f"{type(error).__name__}: {error}"
        finally:
            sys.stdin = stdin
    parts = [f"asked {each!r}" for each in master.asked]
    printed = {"stdout": out.getvalue(), "stderr": err.getvalue()}
    parts += [f"{name}\n{text}" for name, text in printed.items() if text]
    files = [path.read_text() for path in folder.glob("out*.csv")]
    answered = re.sub(r"done about [^(]+\(", "done about WHEN (", str(answer))
    return _steady("\n".join([*parts, answered, *files]), folder)


def _steady(text: str, folder: Path) -> str:
    text = (
        text.replace("\r", "<CR>")
        .replace(str(folder), "DIR")
        .replace(date(AT), "2026-11-23 14:30:00")
        .replace(date(AT - 60), "2026-11-23 14:29:00")
    )
    for at in (CREATED_AT + second for second in range(61)):  # as in UTC
        for form in ("%Y-%m-%d %H:%M:%S", "%m-%d %H:%M:%S"):
            here = datetime.fromtimestamp(at).strftime(form)
            text = text.replace(here, datetime.fromtimestamp(at, UTC).strftime(form))
    lines = (line.rstrip() for line in text.splitlines())
    return "\n".join(f"    {line}" if line else "" for line in lines).rstrip()


@cache
def _written() -> dict[str, str]:
    parts = re.split(r"^\$ (.*)\n", FILE.read_text(encoding="utf-8"), flags=re.M)
    return {name: text.rstrip("\n") for name, text in zip(parts[1::2], parts[2::2], strict=True)}


@pytest.fixture(autouse=True)
def ann(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have all experiments belong to ann."""
    monkeypatch.setenv("LOGNAME", "ann")


@pytest.mark.parametrize("line", LINES)
def test_a_line_answers_what_is_written(line: str, tmp_path: Path) -> None:
    assert said(line, tmp_path) == _written()[line]


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_is_written(name: str, tmp_path: Path) -> None:
    assert _steady(PAGES[name](), tmp_path) == _written()[name]


if __name__ == "__main__":
    os.environ["LOGNAME"] = "ann"
    socket.gethostname = lambda: "left"  # as in conftest.py
    texts = {name: _steady(page(), Path("/none")) for name, page in PAGES.items()}
    for each in LINES:
        with tempfile.TemporaryDirectory() as folder:
            texts[each] = said(each, Path(folder))
    FILE.write_text("\n".join(f"$ {name}\n{text}\n" for name, text in texts.items()))
