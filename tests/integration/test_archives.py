"""Archives: what one master exports, another one shows and continues; hostile files do nothing."""

from __future__ import annotations

import hashlib
import io
import json
import os
import random
import stat
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from det_jupyter.client import Client, Experiment
from det_jupyter.client.sharing.archive_export import export_archive
from det_jupyter.client.sharing.archive_import import import_archive
from det_jupyter.connection import Session
from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.contract.messages import Capsule, ContinueExperiment, State
from det_jupyter.contract.run.journal import BatchMetrics, Notice
from det_jupyter.contract.values.reader import SHELL
from det_jupyter.errors import ConfigError, Conflict, DetError
from det_jupyter.front.cli.shell_table import shell_parser
from det_jupyter.front.verbs.grammar import Call, parse_words
from det_jupyter.storage import open_storage, path_of
from tests.integration.in_process import InProcess
from tests.integration.master_support import (
    gang_exited,
    gang_started,
    last_words,
    make_chunk,
    make_request,
    make_text_chunk,
    started,
    validation,
)
from tests.integration.routes_support import INFO, Routes, opened_routes, saved

Members: TypeAlias = dict[str, bytes]
SECRET = "very-secret-9"
MODULE = "nets/wide.py"


@contextmanager
def master(folder: Path) -> Iterator[tuple[Routes, Client]]:
    with opened_routes(folder) as routes:
        info = INFO.model_copy(update={"pid": os.getpid(), "data_dir": str(folder / "data")})
        session = Session(info, transport=InProcess(routes))
        yield routes, Client(session)
        session.close()


def capsule(blobs: BlobStore, **changes: Any) -> Capsule:
    cells = {"cell": {"label": "Cell In[5]", "source": "class Trial: ..."}}
    return Capsule(
        entrypoint="Trial",
        payload=blobs.put(b"a pickle"),
        sources=blobs.put(json.dumps(cells).encode()),
        modules={MODULE: blobs.put(b"width = 7\n")},
        packages={"Python": "3.0.1"},
    ).model_copy(update=changes)


def train(routes: Routes, folder: Path, blobs: BlobStore, **changes: Any) -> None:
    """Let an experiment train to its end, with two checkpoints and a line that is a secret."""
    routes.bench.register()
    request = make_request(
        name="digits",
        alerts=[{"slack": "${HOOK}"}],
        environment={"environment_variables": [f"MY_TOKEN={SECRET}", "A=1"]},
        checkpoint_storage={"save_trial_best": 9, "save_trial_latest": 9},
    )
    kept = {"salt": "s", "values": {}, "alerts": {"HOOK": "https://hooks.example.org/T0/B0"}}
    code = capsule(blobs, environment=blobs.put(json.dumps(kept).encode()), **changes)
    body = request.model_copy(update={"capsule": code, "cwd": str(folder)})
    routes.post("/experiments", **body.model_dump(mode="json"))
    storage = open_storage(None, folder / "data")
    records: list[Any] = [BatchMetrics(at=1.5, first=1, values={"loss": [0.5, 0.25]})]
    for steps, uuid, error in ((50, "good", 0.1), (100, "late", 0.4)):
        draft = storage.begin(uuid)
        (draft.path / "code").mkdir()
        (draft.path / "code" / "w.pt").write_bytes(b"weights of " + uuid.encode())
        (draft.path / "metadata.json").write_text(json.dumps({"uuid": uuid}))
        draft.commit()
        records += [validation(steps, error), saved(uuid, steps, path_of(storage, uuid))]
    told = [started(), *records, Notice(at=1.0, rank=0, text="remark"), *last_words()]
    text = make_text_chunk(f"epoch 1\nsaid {SECRET}\n", stream="output-0")
    routes.bench.report(gang_started(), make_chunk(told), text, gang_exited())


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Routes, Client]]:
    folder = tmp_path_factory.mktemp("here")
    with master(folder) as (routes, client):
        train(routes, folder, BlobStore(folder / "data" / "blobs"))
        yield routes, client


@pytest.fixture(scope="module")
def archive(here: tuple[Routes, Client], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an archive with both checkpoints."""
    path = tmp_path_factory.mktemp("archives") / "digits.zip"
    return Experiment(here[1], 1).export_archive(path, checkpoints="all")


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Client]]:
    """Return another master, which takes nothing but damaged archives."""
    folder = tmp_path_factory.mktemp("there")
    with master(folder) as (_, client):
        yield folder, client


def test_a_colleague_sees_the_same_and_continues_it(
    here: tuple[Routes, Client], archive: Path, tmp_path: Path
) -> None:
    before = Experiment(here[1], 1)
    with master(tmp_path) as (routes, client):
        found = import_archive(client, archive)
        assert (found.num_trials, found.num_checkpoints, found.stored.num_values) == (1, 2, 4)
        assert found.remarks[0].startswith("Its code was captured with Python 3.0.1 and this is ")
        experiment = Experiment(client, found.stored.experiment_id)
        view, trial = experiment.view, experiment.view.trials[0]
        assert (view.name, view.labels, view.state) == ("digits", ["imported"], State.COMPLETED)
        own = before.view.trials[0]
        for name in ("progress", "steps_completed", "best_metric", "seed", "hparams", "notices"):
            assert getattr(trial, name) == getattr(own, name), name
        assert client.curves(view.id, repeats=True) == here[1].curves(1, repeats=True)
        assert dict(experiment.code()) == dict(before.code())
        assert [line.text for line in experiment.logs()] == ["epoch 1", "said <removed>"]
        best = experiment.best_checkpoint()
        assert (best.uuid, best.files) == ("good", before.best_checkpoint().files)
        assert (best.path / "code" / "w.pt").read_bytes() == b"weights of good"
        again = import_archive(client, archive)
        assert (again.stored.num_values, again.stored.num_lines) == (0, 0)
        assert [row.id for row in client.experiments()] == [view.id]
        routes.bench.register()
        more = ContinueExperiment(config={"searcher": {"max_length": {"batches": 200}}})
        assert client.continue_experiment(view.id, more).state is State.ACTIVE
        plan = routes.bench.service.machine.state.trial(trial.id).latest_checkpoint
        assert plan is not None
        assert plan.uuid == "late"


def test_the_verbs_say_what_was_written_and_imported(
    here: tuple[Routes, Client], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert said(here[1], "e", "export-archive", "1", "a.zip").startswith(
        "Wrote experiment 1 to a.zip (1 trial, 1 checkpoint, "
    )
    with master(tmp_path / "home") as (_, client):
        first, *_ = said(client, "e", "import-archive", "a.zip").splitlines()
        assert first == (
            "Experiment 1 was imported (1 trial, 1 checkpoint); `det experiment show 1` shows it."
        )
        assert "1 has all of it already" in said(client, "e", "import-archive", "a.zip")


def said(client: Client, *words: str) -> str:
    """Return what a line of the shell answers."""
    options = parse_words(shell_parser(), words)
    handle = partial(Experiment, client)
    answer = options.verb.run(
        Call(options=options, client=client, experiment=handle, reader=SHELL)
    )
    assert isinstance(answer, str)
    return answer


def test_an_archive_has_no_secrets(archive: Path) -> None:
    content = archive.read_bytes()
    for secret in (SECRET, "HOOK", "hooks.example.org", "token\n"):
        assert secret.encode() not in content
    config = json.loads(members_of(archive)["manifest.json"])["experiment"]["config"]
    assert config["environment"]["environment_variables"] == ["MY_TOKEN", "A"]
    assert stat.S_IMODE(archive.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("name", "value"),
    [("API_KEY", "width = 7"), ("DATABASE", "postgres://ann:width%20%3D%207@db.lab/runs")],
)
def test_code_with_a_secret_of_this_environment_is_not_exported(
    here: tuple[Routes, Client],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: str,
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(Conflict, match=rf"would contain the value of .* variable {name}, so"):
        export_archive(here[1], 1, tmp_path / "digits.zip")
    assert [*tmp_path.iterdir()] == []


def test_the_best_checkpoint_is_exported_or_none(
    here: tuple[Routes, Client], tmp_path: Path
) -> None:
    for choice, uuids in (("best", {"good"}), ("none", set())):
        path = Experiment(here[1], 1).export_archive(tmp_path / "a", checkpoints=choice)  # type: ignore[arg-type]
        names = [name.split("/") for name in members_of(path)]
        assert {name[1] for name in names if name[0] == "checkpoints"} == uuids
    with pytest.raises(ConfigError, match="checkpoints: got 'some', expected one of best, all"):
        export_archive(here[1], 1, tmp_path / "a", "some")  # type: ignore[arg-type]


def test_an_experiment_that_has_not_ended_is_not_exported(
    here: tuple[Routes, Client], tmp_path: Path
) -> None:
    routes, client = here
    routes.post("/experiments", **make_request(name="other").model_dump(mode="json"))
    with pytest.raises(Conflict, match="experiment 2 is active; one that is over"):
        Experiment(client, 2).export_archive(tmp_path / "a")


def test_the_master_that_exported_it_refuses_its_own_checkpoints(
    here: tuple[Routes, Client], archive: Path
) -> None:
    with pytest.raises(Conflict, match=r"its checkpoint good is one of experiment 1 here"):
        import_archive(here[1], archive)
    assert Experiment(here[1], 1).best_checkpoint().files


def members_of(path: Path) -> Members:
    with zipfile.ZipFile(path) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist()}


Change = Callable[[Members, dict[str, Any]], None]


def rewritten(path: Path, change: Change) -> bytes:
    """Return an archive that was changed, with the sizes and digests of what it has then."""
    members = members_of(path)
    manifest = json.loads(members.pop("manifest.json"))
    listed = manifest.pop("members")
    change(members, manifest)
    listed = {
        name: {"size_bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for name, content in members.items()
    }
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
        archive.writestr("manifest.json", json.dumps({"members": listed, **manifest}))
    return stream.getvalue()


def trial_of(manifest: dict[str, Any]) -> dict[str, Any]:
    trial: dict[str, Any] = manifest["experiment"]["trials"][0]
    return trial


def capsule_of(manifest: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = manifest["experiment"]["capsule"]
    return found


def change_version(members: Members, manifest: dict[str, Any]) -> None:
    manifest["version"] = 2


def change_format(members: Members, manifest: dict[str, Any]) -> None:
    manifest["format"] = "zip"


def rename_checkpoint(members: Members, manifest: dict[str, Any]) -> None:
    trial_of(manifest)["checkpoints"][0]["uuid"] = ".."


def lead_out(members: Members, manifest: dict[str, Any]) -> None:
    members["checkpoints/good/../../../x"] = b"x"


def lead_module_out(members: Members, manifest: dict[str, Any]) -> None:
    modules = capsule_of(manifest)["modules"]
    modules["../nets/wide.py"] = modules.pop(MODULE)


def add_blob(members: Members, manifest: dict[str, Any]) -> None:
    members["blobs/more"] = b""


def change_blob(members: Members, manifest: dict[str, Any]) -> None:
    members[f"blobs/{capsule_of(manifest)['payload']}"] = b"another"


def damage_sources(members: Members, manifest: dict[str, Any]) -> None:
    del members[f"blobs/{capsule_of(manifest)['sources']}"]
    digest = hashlib.sha256(b"[]").hexdigest()
    capsule_of(manifest)["sources"], members[f"blobs/{digest}"] = digest, b"[]"


def drop_logs(members: Members, manifest: dict[str, Any]) -> None:
    del members["trials/0/logs.jsonl"]


def damage_logs(members: Members, manifest: dict[str, Any]) -> None:
    members["trials/0/logs.jsonl"] = b"{}\n"


def damage_metrics(members: Members, manifest: dict[str, Any]) -> None:
    members["trials/0/metrics.jsonl"] = b'{"kind":"notice","at":1,"rank":0,"text":""}\n'


def swap_metadata(members: Members, manifest: dict[str, Any]) -> None:
    members["checkpoints/good/metadata.json"] = b'{"uuid": "late"}'


def make_folder_a_file(members: Members, manifest: dict[str, Any]) -> None:
    members["checkpoints/good/code"] = b""


def change_searcher(members: Members, manifest: dict[str, Any]) -> None:
    manifest["experiment"]["config"]["searcher"]["name"] = "magic"


def change_state(members: Members, manifest: dict[str, Any]) -> None:
    trial_of(manifest)["state"] = "ACTIVE"


def make_number_huge(members: Members, manifest: dict[str, Any]) -> None:
    trial_of(manifest)["hparams"]["n"] = 10**400


CHANGES: dict[str, Change] = {
    "it has version 2 of the format, and this det_jupyter reads version 1": change_version,
    "is of another format": change_format,
    "is none of an archive": lead_out,
    "is no name of a checkpoint": rename_checkpoint,
    "would lie outside of the code's folder": lead_module_out,
    "'blobs/more' is missing, or belongs to no part": add_blob,
    "has another content": change_blob,
    "its captured sources are damaged": damage_sources,
    "'trials/0/logs.jsonl' is missing": drop_logs,
    "trials/0/logs.jsonl is damaged": damage_logs,
    "trials/0/metrics.jsonl is damaged": damage_metrics,
    "metadata.json of checkpoint good is damaged": swap_metadata,
    "is a file and a folder": make_folder_a_file,
    "its configuration is not valid here: searcher": change_searcher,
    "manifest.json is damaged: experiment.trials.0.state": change_state,
    "an integer of 1329 bits": make_number_huge,
}


def contents(folder: Path) -> set[Path]:
    """Return the files with data of users: not the database, which may grow."""
    found = {path for path in folder.rglob("*") if path.is_file()}
    return {path for path in found if not path.name.startswith("det.sqlite3")}


def refusal(there: tuple[Path, Client], content: bytes, tmp_path: Path) -> str:
    """Return why an archive is refused; nothing of it may be left."""
    folder, client = there
    path = tmp_path / "bad.zip"
    path.write_bytes(content)
    before = contents(folder)
    with pytest.raises(DetError) as caught:
        import_archive(client, path)
    assert contents(folder) == before
    assert client.experiments() == []
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert sentence.endswith("; nothing was imported")
    return sentence


@pytest.mark.parametrize("said", CHANGES)
def test_an_archive_that_was_changed_leaves_nothing_behind(
    there: tuple[Path, Client], archive: Path, tmp_path: Path, said: str
) -> None:
    assert said in refusal(there, rewritten(archive, CHANGES[said]), tmp_path)


def with_info(path: Path, change: Callable[[zipfile.ZipInfo], object]) -> bytes:
    """Return an archive with another entry of a checkpoint's file."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as target:
        for name, content in members_of(path).items():
            info = zipfile.ZipInfo(name)
            if name.endswith("good/code/w.pt"):
                change(info)
            target.writestr(info, content)
    return stream.getvalue()


def link(info: zipfile.ZipInfo) -> None:
    info.external_attr = (stat.S_IFLNK | 0o777) << 16


def compress(info: zipfile.ZipInfo) -> None:
    info.compress_type = zipfile.ZIP_DEFLATED


def test_links_bombs_and_other_files_are_refused(
    there: tuple[Path, Client], archive: Path, tmp_path: Path
) -> None:
    content = archive.read_bytes()
    weights = content.replace(b"weights of good", b"weights of evil")
    for said, bad in {
        "is no regular file": with_info(archive, link),
        "is compressed": with_info(archive, compress),
        "it is no archive of det_jupyter": b"PK" * 50,
        "it is no archive": content[: len(content) // 2],
        "Bad CRC-32": weights,
    }.items():
        assert said in refusal(there, bad, tmp_path)
    with pytest.raises(DetError, match="cannot be read: it is no regular file"):
        import_archive(there[1], "/dev/zero")


def test_a_file_with_random_damage_is_refused_or_whole(archive: Path, tmp_path: Path) -> None:
    content, numbers = archive.read_bytes(), random.Random(5)
    path = tmp_path / "bad.zip"
    with master(tmp_path / "home") as (_, client):
        for _ in range(60):
            damaged = bytearray(content)
            damaged[numbers.randrange(len(content))] ^= 1 << numbers.randrange(8)
            path.write_bytes(damaged)
            with suppress(DetError):
                import_archive(client, path)
        assert len(client.experiments()) <= 1
