"""Lines of `det`: what they mean, what they print, and their exit status."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from det_jupyter.contract.messages import LEVELS
from det_jupyter.contract.messages.queries import Sort
from det_jupyter.front.cli.shell_table import SHELL, shell_parser
from det_jupyter.front.notebook.complete.magic_parsers import DET, EXPERIMENT
from det_jupyter.front.verbs import arguments, queue_changes, table_experiments, table_others
from det_jupyter.front.verbs.grammar import Lazy, Verb, VerbGroup, parse
from tests.unit.front.cli.conftest import Master, Typed


def verbs_of(group: VerbGroup) -> Iterator[Verb]:
    for member in group.members:
        if isinstance(member, VerbGroup):
            yield from verbs_of(member)
        else:
            yield member


@pytest.mark.parametrize("group", [EXPERIMENT, DET, SHELL], ids=lambda group: group.name)
def test_each_verb_has_its_function(group: VerbGroup) -> None:
    for verb in verbs_of(group):
        assert isinstance(verb.run, Lazy)
        if verb.name != "mcp" or find_spec("mcp"):  # an extra
            assert callable(verb.run.resolve()), verb


def test_what_is_written_twice_is_the_same() -> None:
    assert list(arguments.LEVELS) == list(LEVELS)
    assert Sort.__args__ == table_experiments.SORTS  # type: ignore[attr-defined]  # of a Literal
    assert list(table_others.OPERATIONS) == list(queue_changes.OPERATIONS)


def test_every_listing_takes_the_options_of_all() -> None:
    things = {f"{group.name}s" for group in SHELL.members if isinstance(group, VerbGroup)}
    things -= {"slots"}  # a ledger for people; `slot list` has a row for each
    listings = [
        verb for verb in verbs_of(SHELL) if verb.name.startswith("list") or verb.name in things
    ]
    assert len(listings) > 9
    for verb in listings:
        assert [each for each in arguments.PAGE if each not in verb.arguments] == [], verb.name


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("e", "det experiment list"),
        ("e ls -a", "det experiment list"),
        ("experiment --csv", "det experiment list"),
        ("e create a.yaml dir -f", "det experiment create"),
        ("e create a.yaml dir --follow-first-trial --config a=1 --config b=2 -i x -i y",
         "det experiment create"),
        ("e create a.yaml --local --test-mode", "det experiment create"),
        ("e create a.yaml dir --paused --template t --publish", "det experiment create"),
        ("e describe 3,5 --metrics --outdir x", "det experiment describe"),
        ("e wait 3 --polling-interval 5", "det experiment wait"),
        ("e logs 3 -f --tail 5 --rank-id 1 --level info", "det experiment logs"),
        ("e logs 3 --timestamp-before 2026-01-31 --timestamp-after 2d --json",
         "det experiment logs"),
        ("e lt 3 --json", "det experiment list-trials"),
        ("e lc 3 --best 2", "det experiment list-checkpoints"),
        ("e unpause 3", "det experiment activate"),
        ("e label add 3 a b", "det experiment label add"),
        ("e set max-slots 3 none", "det experiment set max-slots"),
        ("e set 3 --priority 1", "det experiment set"),
        ("e set gc-policy 3 --save-experiment-best 1 --save-trial-best 1 --save-trial-latest 1 -y",
         "det experiment set gc-policy"),
        ("e download 3 --top-n 2 --sort-by error --smaller-is-better true -o x",
         "det experiment download"),
        ("e download-model-def 3 --output-dir x", "det experiment download-model-def"),
        ("e continue 3 --config-file x.yaml --config a=1 -f", "det experiment continue"),
        ("e fork 3 --checkpoint u", "det experiment fork"),
        ("e explain searcher", "det experiment ?"),
        ("t describe 3 --metrics-summary --json", "det trial describe"),
        ("t download 3 --latest -o x", "det trial download"),
        ("trial kill 3", "det trial kill"),
        ("t logs 3 --head 3", "det trial logs"),
        ("c describe u", "det checkpoint describe"),
        ("checkpoint download u -o x", "det checkpoint download"),
        ("task", "det task list"),
        ("task logs 3", "det task logs"),
        ("task kill 3", "det task kill"),
        ("template set-value config x f.yaml", "det template set-value config"),
        ("master info --json", "det master info"),
        ("master info -o yaml", "det master info"),
        ("s", "det slot list"),
        ("a disable left --drain", "det agent disable"),
        ("j ls -p night", "det job list"),
        ("job update 3 --priority 1", "det job update"),
        ("tpl", "det template list"),
        ("t describe 3 --limit 20 --offset 40 --pages all", "det trial describe"),
        ("t download 3 --best --sort-by acc --smaller-is-better false -q", "det trial download"),
        ("e download 3 --top-n 2 --quiet", "det experiment download"),
        ("c download 0af3 -q", "det checkpoint download"),
        ("e lc 3 --be 2", "det experiment list-checkpoints"),  # the beginning of --best
        ("tpl create x f.yaml", "det template create"),
        ("template rm x", "det template delete"),
        ("rp --json", "det pool list"),
        ("resource-pool list", "det pool list"),
        ("master logs -f --tail 5", "det master logs"),
        ("master config show", "det master config show"),
        ("tensorboard start 3 4 --no-serve", "det tensorboard start"),
        ("preview-search x.yaml", "det preview-search"),
        ("slots", "det slots"),
        ("queue", "det queue"),
        ("why --experiment 3", "det why"),
        ("version", "det version"),
    ],
)  # fmt: skip
def test_the_lines_of_determined_are_lines_here(line: str, words: str) -> None:
    options = parse(shell_parser(), line)
    group, *rest = words.split()[1:]
    assert options.words.split()[0] == "det"
    assert options.verb.name == (rest[-1] if rest else group) or options.verb.name == ""


def test_the_examples_of_the_help_are_lines() -> None:
    lines = [
        line.split("  ")[1] for line in SHELL.examples.splitlines()[1:] if line[:5] == "  det"
    ]
    assert len(lines) > 5
    for line in lines:
        for one in line.split(" && "):
            parse(shell_parser(), one.removeprefix("det "))


def test_the_list_has_the_columns_of_determined(det: Typed) -> None:
    said = det("e")
    assert said.status == 0
    header, row, *_ = said.out.splitlines()
    assert header.split("  ")[0] == "ID"
    for name in ("Owner", "Name", "Parent ID", "State", "Progress", "Started", "Ended",
                 "Resource Pool"):  # fmt: skip
        assert name in header
    assert row.split()[0] == "8"
    assert "night" in row
    rows = json.loads(det("e list --json").out)
    assert [each["ID"] for each in rows] == [8, 7]
    assert rows[0]["Parent ID"] == 3
    assert rows[0]["Progress"] == 0.5
    [head, *cells] = csv.reader(det("e list --csv").out.splitlines())
    assert head == list(rows[0])
    assert len(cells) == 2


def test_a_list_is_taken_page_by_page(det: Typed, master: Master) -> None:
    rows = json.loads(det("e list --json --limit 1 --offset 1").out)
    assert [each["ID"] for each in rows] == [7]
    assert master.asked[-1].limit == 2


def test_a_description_is_three_tables(det: Typed, tmp_path: Path) -> None:
    said = det("e describe 7").out
    assert [line for line in said.splitlines() if line.endswith(":")] == [
        "Experiment:", "Trials:", "Workloads:",
    ]  # fmt: skip
    document = json.loads(det("e describe 7 --json --metrics").out)
    assert document["experiment"][0]["Experiment ID"] == 7
    assert document["trials"][0]["H-Params"]["lr"] == 0.05
    rows = document["workloads"]
    assert [row["# of Batches"] for row in rows] == [10, 20, 30]
    assert rows[1]["Training Metric: loss"] == 1.0
    assert rows[1]["Validation Metric: error"] == 0.4
    assert [row["Checkpoint"] for row in rows] == ["COMPLETED"] * 3
    assert [row["Validation"] for row in rows] == [None, "COMPLETED", None]
    assert det("e", "describe", "7,8", "--outdir", str(tmp_path / "new")).status == 0
    files = sorted(path.name for path in (tmp_path / "new").iterdir())
    assert files == ["experiments.csv", "trials.csv", "workloads.csv"]
    text = (tmp_path / "new" / "experiments.csv").read_text()
    assert len(text.splitlines()) == 3


def test_the_best_checkpoints_are_those_validated(det: Typed) -> None:
    rows = json.loads(det("e lc 7 --best 5 --json").out)
    assert [row["Validation Metric"] for row in rows] == [0.5, 0.4]


@pytest.mark.parametrize(
    ("line", "asked"),
    [
        ("e pause 7", (7, "pause")),
        ("e unpause 7", (7, "activate")),
        ("e kill 7", (7, "kill")),
        ("e set name 7 wide", (7, {"name": "wide"})),
        ("e set max-slots 7 none", (7, {"max_slots": "none"})),
        ("e set priority 7 3", (7, {"priority": 3})),
        ("e set resource-pool 7 night", (7, {"resource_pool": "night"})),
        ("e label rm 7 a", (7, {"remove_labels": ["a"]})),
    ],
)
def test_an_experiment_is_steered(det: Typed, master: Master, line: str, asked: Any) -> None:
    said = det(line)
    assert (said.status, said.err) == (0, "")
    assert master.asked == [asked]


def logged(text: str) -> list[str]:
    return [line.rpartition("| ")[2] for line in text.splitlines()]


@pytest.mark.parametrize(
    ("line", "lines"),
    [
        ("e logs 7", [1, 2, 3, 4, 5]),
        ("t logs 1 --tail 2", [4, 5]),
        ("task logs 1 --head 2", [1, 2]),
        ("e logs 7 --allocation-id 7.1.2", [3, 4, 5]),
        ("e logs 7 --allocation-id 7.1.2 --tail 1", [5]),
        ("e logs 7 -f", [1, 2, 3, 4, 5]),
    ],
)
def test_logs_are_the_lines_and_nothing_else(det: Typed, line: str, lines: list[int]) -> None:
    assert logged(det(line).out) == [f"line {i}" for i in lines]


def test_logs_for_programs_are_a_document_on_each_line(det: Typed) -> None:
    rows = [json.loads(line) for line in det("t logs 1 --json").out.splitlines()]
    assert [(row["log"], row["rank_id"]) for row in rows][:2] == [("line 1", 1), ("line 2", 0)]


def test_no_lines_are_no_output(det: Typed, master: Master) -> None:
    master.lines = []
    said = det("t logs 1")
    assert (said.status, said.out) == (0, "")
    assert said.err == "Trial 1: its ranks have printed nothing yet.\n"


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("slt", "invalid choice: 'slt'; did you mean slot?"),
        ("lst", "invalid choice: 'lst'; did you mean `det experiment list`?"),
        ("logs 3", "invalid choice: 'logs'; did you mean `det experiment logs`?"),
        ("submit", "invalid choice: 'submit'; expected experiment, slots, slot, agent, cluster,"),
        ("e pause x", "det experiment pause: argument ID: got 'x', expected the number"),
        ("e set 7", "det experiment set: nothing to change; give --name"),
        ("-m host e", "det: -m: det talks to your own master on this computer"),
        ("workspace list", "there is no `det workspace`: there are no workspaces"),
        ("e move 7 a b", "there is no `det experiment move`: there are no workspaces"),
        ("rbac list-roles", "there is no `det rbac`: there is one user: you"),
        ("config-policies set", "there is no `det config-policies`: there is one user"),
        ("e set log-retention 7", "there is no `det experiment set log-retention`: logs are"),
        ("model move digits Vision", "there is no `det model move`: there are no workspaces"),
        ("tensorboard logs 1", "there is no `det tensorboard logs`: a TensorBoard is a process"),
        ("tensorboard start 7 --config a=b", "a TensorBoard is a process here, not a task"),
        ("e create a.yaml . --project_id 3", "there are no workspaces and no projects here"),
        ("task pause 7", "there is no `det task pause`: all tasks are trials"),
        ("e list --since then", "det experiment list: since: got 'then', expected a date"),
        ("e logs 7 --since then", "det experiment logs: since: got 'then', expected a date"),
        (f"e label add 7 {'x' * 101}", "det experiment label add: add_labels: got ['xxx"),
        (f"e label remove 7 {'x' * 101}", "det experiment label remove: remove_labels: got ['xxx"),
        ("e change 7", "det experiment change: nothing to change; give --max-trials"),
        ("e describe 3,5-", "argument ID: got '5-', expected the number of an experiment"),
        ("e logs 7 --head 0", "argument --head: got '0', expected a whole number, 1 or more"),
        ("e create a.yaml . --checkpoint-storage=", "got '', expected the path of a folder"),
        ("t set 7", "det trial set: nothing to change; give --lr"),
        ("e logs 7 --stdtype stdout", "is not recorded here; leave the option out"),
        ("e logs 7 --head 1 --tail 1", "not allowed with argument"),
        ("e logs 7 --allocation-id 7", "--allocation-id: got '7', expected EXPERIMENT.TRIAL.RUN"),
        ("template set x", "det template set: give a file with YAML"),
        ("e download 7 --sort-by error", "give --sort-by and --smaller-is-better together"),
    ],
)
def test_a_wrong_line_is_told_in_one(det: Typed, line: str, problem: str) -> None:
    said = det(line)
    assert said.status == 2
    assert said.out == ""
    assert problem in said.err
    assert said.err.count("\n") == 1
    assert "%" not in said.err


def test_what_is_refused_is_told_in_the_words_of_a_shell(det: Typed) -> None:
    said = det("e describe 99")
    assert (said.status, said.out) == (1, "")
    assert said.err == "there is no experiment 99; there are: 7, 8\n"


def test_a_key_that_there_is_not_is_refused(det: Typed) -> None:
    said = det("e explain searcher.divisr")
    assert (said.status, said.out) == (1, "")
    assert said.err.startswith("there is no key searcher.divisr; did you mean searcher.divisor")


def test_all_that_is_wrong_with_a_previewed_file_comes_together(
    det: Typed, tmp_path: Path
) -> None:
    file = tmp_path / "search.yaml"
    file.write_text("entrypoint: A\nsearchr: {}\nhyperparameters: {a: no}\nmax_restarts: x\n")
    said = det(f"preview-search {file}")
    assert (said.status, said.out) == (1, "")
    keys = [line.split(": ")[2] for line in said.err.splitlines()]
    assert keys == ["searchr", "hyperparameters.a", "max_restarts"]


def test_changes_that_can_be_read_are_made_before_problems_are_listed(
    det: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "det_jupyter.client.submitting.submission.find_slot_problems", lambda *_, **__: []
    )
    file = tmp_path / "search.yaml"
    file.write_text("entrypoint: m:A\nsearcher: {name: single, metric: x}\nmax_restarts: x\n")
    said = det(f"e create {file} --config searcher.max_length.batches=3 --config oops")
    assert (said.status, said.out) == (1, "")
    assert "oops" in said.err
    assert "max_restarts" in said.err
    assert "searcher.max_length: " not in said.err


def test_a_cluster_of_others_is_not_asked(det: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DET_MASTER", "https://somewhere")
    said = det("e pause 7")
    assert said.status == 0
    assert said.err.startswith("Note: DET_MASTER has no effect")
    monkeypatch.setenv("DET_ALLOCATION_ID", "3.7.1")  # a command of a trial: we have set both
    assert det("e pause 7").err == ""


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("e des", ["describe"]),
        ("e kill ", ["8", "7"]),
        ("e kill 7 -", ["--help"]),
        ("e create ", []),  # files
        ("e set ", ["name", "description", "priority", "8", "7"]),
        ("template show d", ["digits"]),
        ("e logs 7 --level w", ["warning"]),
        ("e logs 7 --le", ["--level"]),
        ("nonsense ", []),
    ],
)
def test_tab_offers_words(
    det: Typed, monkeypatch: pytest.MonkeyPatch, line: str, words: list[str]
) -> None:
    from det_jupyter.front.cli import shell_completion

    monkeypatch.setattr(shell_completion, "connect_to_running", lambda: None)
    monkeypatch.setattr(shell_completion, "Client", lambda session: Master())
    offered = det("completion", "words", "--", *line.split(" ")).out.splitlines()
    assert set(words) <= set(offered)
    assert words or not offered
    typed = line.rpartition(" ")[2]
    assert all(word.startswith(typed) for word in offered)
    assert typed.startswith("-") or not any(word.startswith("-") for word in offered)


ABSENT_AFTER = {  # in this order, each with what those before it have imported
    "version": ("torch", "IPython", "httpx", "pydantic", "yaml"),
    "e --help": ("torch", "IPython", "httpx", "pydantic", "yaml"),
    "e list": (
        "torch", "IPython", "tqdm", "det_jupyter.front.notebook", "det_jupyter.diagnosis"
    ),
}  # fmt: skip


def test_little_is_imported(tmp_path: Path) -> None:
    code = f"""if True:
        import sys
        from det_jupyter.front.cli.__main__ import main
        for line, absent in {ABSENT_AFTER}.items():
            main(line.split())
            print("imported:", line, [name for name in absent if name in sys.modules])
    """
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env={"DET_JUPYTER_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    said = [line for line in done.stdout.splitlines() if line.startswith("imported:")]
    assert said == [f"imported: {line} []" for line in ABSENT_AFTER]


def test_a_closed_pipe_is_quiet() -> None:
    line = f"{sys.executable} -m det_jupyter e --help | true"
    done = subprocess.run(line, shell=True, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_bash_completes_by_its_script(tmp_path: Path) -> None:
    script = f"""
        det() {{ {sys.executable} -m det_jupyter "$@"; }}
        eval "$(det completion bash)"
        COMP_WORDS=(det e label ""); COMP_CWORD=3; _det; echo "${{COMPREPLY[*]}}"
    """
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, check=True,
        env={"DET_JUPYTER_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("add remove rm\n", "")
