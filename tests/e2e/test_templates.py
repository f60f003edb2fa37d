"""Templates as a user has them: set from cells and files, laid under experiments, shown."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from det_jupyter.client import Client
from tests.notebook_kernel import Notebook, notebook
from tests.processes import DetHome, wait_until
from tests.trials import TRIAL_SOURCE

pytestmark = pytest.mark.e2e

TEAM = """%%det template set team
resources: {slots_per_trial: 2, priority: 50}
labels: [team]
min_validation_period: {batches: 2}
"""
CELL = """%%det_experiment --template team
entrypoint: SmallTrial
hyperparameters: {global_batch_size: 16, pause_s: 0}
searcher: {name: single, metric: error, max_length: {batches: 4}}
labels: [mine]
"""


@pytest.fixture(scope="module")
def book(home: DetHome, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebook]:
    """Return a notebook in which the trial is defined."""
    with notebook(tmp_path_factory.mktemp("book")) as book:
        book.check("%load_ext det_jupyter")
        book.check(TRIAL_SOURCE)
        yield book


@pytest.fixture(autouse=True)
def _no_templates(client: Client) -> Iterator[None]:
    """Find none of other modules, which use this home too, and leave them none."""
    delete_all(client)
    yield
    delete_all(client)


def delete_all(client: Client) -> None:
    for template in client.templates():
        client.delete_template(template.name)


def message_of(book: Notebook, code: str) -> str:
    outputs = book.run(code)
    assert outputs.error, f"no error: {outputs}"
    assert "det_jupyter/" not in outputs.error, "our own frames are of no use to the user"
    return outputs.error


def test_a_template_from_a_cell_is_listed_shown_replaced_and_deleted(book: Notebook) -> None:
    assert book.check(TEAM).text == (
        "Template team is set: resources, labels, min_validation_period.\n"
    )
    assert "team" in book.check("%det template list").text
    assert "slots_per_trial: 2" in book.check("%det tpl list --detail").text
    assert "slots_per_trial: 2" in book.check("%det template show team").text
    assert book.check("%det template describe team").text.count("labels") == 1
    replaced = book.check("%%det template set team\nmax_restarts: 1\n").text
    assert replaced == "Template team is replaced: max_restarts.\n"
    assert "team is deleted" in book.check("%det template remove team").text
    assert book.check("%det template list").text.startswith("No templates yet")
    assert "there is no template 'team'" in message_of(book, "%det template show team")


def test_a_template_from_a_file_or_a_dict(book: Notebook) -> None:
    book.check("%%writefile team.yaml\nresources:\n  slots_per_trial: 2\n")
    book.check("%det template set from-file team.yaml")
    book.check("import det_jupyter\ndet_jupyter.templates.set('from-dict', {'max_restarts': 0})")
    book.check("det_jupyter.templates.set('from-text', 'max_restarts: 0')")
    same = book.check("det_jupyter.templates.get('from-dict') == "
                      "det_jupyter.templates.get('from-text')")  # fmt: skip
    assert same.bundles[-1]["text/plain"] == "True"
    shown = book.check("det_jupyter.templates").bundles[-1]["text/plain"]
    assert shown == "Templates: from-dict, from-file, from-text"
    book.check("for each in det_jupyter.templates.list():\n"
               "    det_jupyter.templates.delete(each.name)")  # fmt: skip
    assert book.check("det_jupyter.templates").bundles[-1]["text/plain"] == "Templates: none yet"
    book.check("%%writefile wrong.yaml\nname: x\nserch: {}\n")
    wrong = message_of(book, "%det template set wrong wrong.yaml")
    assert "wrong.yaml: line 2: serch: " in wrong
    assert "No such file" in message_of(book, "%det template set wrong nowhere.yaml")


def test_what_is_wrong_with_a_template_is_told_with_its_line_and_nothing_is_kept(
    book: Notebook,
) -> None:
    shown = message_of(
        book, "%%det template set bad\nname: x\nresources: {slots_per_trial: two}\nserch: {}\n"
    )
    assert "line 3: resources.slots_per_trial: got 'two', expected a number" in shown
    assert "line 4: serch: " in shown
    assert book.check("%det template list").text.startswith("No templates yet")
    assert "name: got 'a/b'" in message_of(book, "%%det template set a/b\nname: x\n")


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("%det template set x", "give either a file, or %%det template set NAME above YAML"),
        ("%%det template list\nname: x", "takes no cell"),
        ("%det tmplate list", "invalid choice: 'tmplate'"),
    ],
)
def test_a_wrong_line_is_one_line(book: Notebook, line: str, part: str) -> None:
    shown = book.run(line)
    text = (shown.error or shown.text).strip()
    assert part in text
    assert len(text.splitlines()) == 1


def test_an_experiment_is_laid_over_its_template(book: Notebook) -> None:
    book.check(TEAM)
    book.check(CELL)
    book.check("assert experiment.wait() == 'COMPLETED'")
    book.check("%det template delete team")
    shown = book.check(
        "get_ipython().run_line_magic('det_experiment', f'config {experiment.id}')"
    ).text
    lines = {line.split(":")[0].strip(): line for line in shown.splitlines()}
    assert lines["slots_per_trial"].endswith("# template")
    assert lines["max_restarts"].endswith("# default")
    assert "#" not in lines["entrypoint"]
    check = (
        "found = experiment.effective_config()\n"
        "assert found.template == 'team'\n"
        "assert sorted(found.config['labels']) == ['mine', 'team']\n"
        "assert found.origins['resources.priority'] == 'template'\n"
        "assert experiment.config == found.config"
    )
    book.check(check)


def test_problems_say_whether_they_are_the_cells_or_the_templates(book: Notebook) -> None:
    book.check("%%det template set team\nresources: {slots_per_trial: 99}\n")
    shown = message_of(book, CELL.replace("metric: error", "metirc: error"))
    assert "line 4: searcher.metirc: unknown key; did you mean metric?" in shown
    assert "resources.slots_per_trial: got 99" in shown
    assert "(from template team)" in shown
    missing = message_of(book, CELL.replace("--template team", "--template tam"))
    assert "--template: there is no template 'tam'; did you mean team?" in missing


def test_a_cell_may_name_its_template_and_all_its_mistakes_are_one_list(book: Notebook) -> None:
    book.check("%%det template set team\nresources: {slots_per_trial: 99}\n")
    cell = CELL.replace(" --template team", "").replace("labels: [mine]", "max_restarts: five")
    cell += "template: team\ndata: [1\n"
    shown = message_of(book, cell.replace("metric: error", "metirc: error"))
    for part in (
        "resources.slots_per_trial: got 99",
        "(from template team)",
        "line 4: searcher.metirc: unknown key; did you mean metric?",
        "line 5: max_restarts: got 'five', expected a number",
        "line 7: data: this is not YAML: the [ that begins here is not closed",
    ):
        assert part in shown
    unknown = message_of(book, cell.replace("template: team", "template: tam"))
    assert "line 6: template: there is no template 'tam'; did you mean team?" in unknown
    assert "line 7: data: this is not YAML" in unknown


def test_what_has_no_effect_is_said_once(book: Notebook, tmp_path: Path) -> None:
    book.check("%%det template set team\nenvironment: {image: 'some/image:1'}\n")
    for option in ("", "--dry-run "):
        text = book.check(CELL.replace("--template", f"{option}--template")).text
        assert text.count("Note: environment.image") == 1
    book.check("experiment.wait()")


def test_a_variable_that_is_only_named_travels_and_is_kept_nowhere_in_plain_sight(
    book: Notebook, home: DetHome
) -> None:
    token = f"hf-{secrets.token_hex(4)}"  # none of those in this file, which a home may keep
    book.check(f"%env HF_TOKEN={token}\n")
    book.check("def show():\n    import os\n    print('token:', os.environ['HF_TOKEN'][::-1])")
    text = book.check(
        "%%det_experiment\nentrypoint: show\n"
        "searcher: {name: single, metric: loss, max_length: 1}\n"
        "environment: {environment_variables: {cpu: [HF_TOKEN, NOT_SET], cuda: [A=1]}}\n"
    ).text
    assert "NOT_SET is not set in this notebook" in text
    assert "HF_TOKEN is not set" not in text
    book.check("assert experiment.wait() == 'COMPLETED'")
    assert f"token: {token[::-1]}" in book.check("print(experiment.trial.logs())").text
    runs = home.path / "data" / "runs"
    wait_until(lambda: not list(runs.iterdir()), "the files of all runs are removed")
    files = [path for path in home.path.rglob("*") if path.is_file()]
    kept = [path for path in files if "blobs" not in path.parts]
    assert kept
    assert [path for path in kept if token.encode() in path.read_bytes()] == []


def test_names_are_completed(book: Notebook) -> None:
    book.check(TEAM)
    # Tab waits for no slow answer, and has it the next time.
    wait_until(lambda: "team" in book.complete("%det template show te"), "it offers the name")
    assert "team" in book.complete("%%det_experiment --template te")
    assert "searcher: " in book.complete("%%det template set x\nsear")
