"""A support bundle has all that could be collected, without secrets, for the user alone."""

from __future__ import annotations

import json
import tarfile
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from det_jupyter._version import __version__
from det_jupyter.contract.host import paths
from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.contract.messages import LogLine, LogPage
from det_jupyter.contract.values.redacting import REMOVED, Redactor
from det_jupyter.errors import DetError, MasterUnreachable
from det_jupyter.front.cli import support_bundle
from det_jupyter.front.cli.support_bundle import _Collected, _tail, bundle
from det_jupyter.front.verbs.grammar import Call
from tests.unit.client.handles.test_experiment import Wired
from tests.unit.front.verbs.cluster_samples import agent, cluster, pool, slot
from tests.unit.front.verbs.finding_samples import rows_found
from tests.unit.view.view_samples import checkpoint, experiment, trial


def test_what_cannot_be_made_is_named_and_the_rest_is_there(tmp_path: Path) -> None:
    collected = _Collected()
    collected.redactor = Redactor(["hunter22"])
    collected.add("logs/a.log", lambda: "joined with hunter22")
    collected.add("logs/b.log", lambda: str(1 / 0))
    collected.add_document("master/info.json", lambda: {"password": "x1y2", "pid": 7})
    path = tmp_path / "bundle.tar.gz"
    size = collected.write(path, "folder")
    assert size == path.stat().st_size
    assert path.stat().st_mode & 0o777 == 0o600
    with tarfile.open(path) as tar:
        files = {
            member.name: (tar.extractfile(member) or pytest.fail("no file")).read().decode()
            for member in tar.getmembers()
        }
    assert files.keys() == {
        "folder/logs/a.log", "folder/master/info.json", "folder/problems.txt",
    }  # fmt: skip
    assert files["folder/logs/a.log"] == f"joined with {REMOVED}"
    assert json.loads(files["folder/master/info.json"]) == {"password": REMOVED, "pid": 7}
    assert files["folder/problems.txt"].startswith("logs/b.log: ")


def test_the_end_of_a_log_begins_with_a_whole_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "master.log"
    log.write_text("token=abc\nsecond\nthird\n", encoding="utf-8")
    assert _tail(log) == "token=abc\nsecond\nthird\n"
    for num_bytes in (13, 14, 15):  # from the end; 13 are the last two lines
        monkeypatch.setattr(support_bundle, "_LOG_BYTES", num_bytes)
        assert _tail(log) == "second\nthird\n"
    monkeypatch.setattr(support_bundle, "_LOG_BYTES", 12)
    assert _tail(log) == "third\n"


class Bundled:
    """`det support-bundle` with a master that answers, or none, and the files in the bundle."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wired = Wired(
            experiments=experiment(trial(), id=12),
            status={"problems": ["joined with master-token"]},
            cluster=cluster(pool(agent(slot(0)))),
            jobs=[],
            checkpoints=[checkpoint(10, 0.5)],
            logs=LogPage(
                lines=[
                    LogLine(id=1, at=0.0, trial_id=1, run=1, rank=0, text="key of-the-shell"),
                    LogLine(id=2, at=0.0, trial_id=1, run=1, rank=0, text="wrote kept-value"),
                ],
                total=2, last_id=2, is_over=True,
            ),
        )  # fmt: skip
        data = tmp_path / "data"
        known = {"data_dir": str(data), "token": "master-token"}
        self.wired.client.session.info = self.wired.client.session.info.model_copy(update=known)
        kept = {"values": {"A": "kept-value"}, "alerts": {"B": "kept-hook"}}
        self.capsule = self.wired.answers["experiments"].capsule.model_copy(
            update={"environment": BlobStore(data / "blobs").put(json.dumps(kept).encode())}
        )
        self.offer(self.capsule, {"environment": {"environment_variables": ["C=in-the-yaml"]}})
        self.master: Any = self.wired.client.session.info
        monkeypatch.setattr(support_bundle, "announced_master", lambda: self.master)
        own = SimpleNamespace(name="det-jupyter", version=__version__)  # it may not be installed
        installed = [metadata.distribution("pytest"), own]
        monkeypatch.setattr(metadata, "distributions", lambda: installed)  # some hundred, else
        monkeypatch.setenv("HF_TOKEN", "of-the-shell")
        monkeypatch.setenv("OMP_NUM_THREADS", "3")
        monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path / "home"))
        monkeypatch.chdir(tmp_path)
        (paths.log_dir() / "master.log").write_text("started with kept-hook\n")

    def offer(self, capsule: Any, config: dict[str, Any]) -> None:
        own = self.wired.answers["experiments"]
        changes = {"capsule": capsule, "config": own.config | config}
        self.wired.answers["experiments"] = own.model_copy(update=changes)

    def made(self, output: str | None = None, **named: Any) -> tuple[str, dict[str, str]]:
        """Return what was said, and the files."""
        options: Any = SimpleNamespace(output=output, **named)
        said = bundle(Call(options=options, client=self.wired.client, experiment=cast(Any, None)))
        path = Path(said.split()[1])
        with tarfile.open(path) as tar:
            files = {
                member.name.partition("/")[2]: tar.extractfile(member).read().decode()  # type: ignore[union-attr]
                for member in tar.getmembers()
            }
        assert f"({len(files)} files, " in said
        path.unlink()
        return said, files


@pytest.fixture
def bundled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bundled:
    return Bundled(tmp_path, monkeypatch)


def test_a_bundle_has_what_a_report_needs_and_no_secret_of_anybody(bundled: Bundled) -> None:
    said, files = bundled.made(ids=[[range(12, 13)]])
    assert files.keys() == {
        "README.txt", "versions.json", "variables.json", "logs/master.log",
        *(f"master/{n}.json" for n in ("info", "status", "cluster", "jobs", "problems")),
        "experiments/12/config.yaml", "experiments/12/experiment.json",
        "experiments/12/checkpoints.json", "experiments/12/output.txt",
    }  # fmt: skip
    assert Path(said.split()[1]).name.startswith("det-support-2")
    whole = "\n".join(files.values())
    for secret in ("of-the-shell", "kept-value", "kept-hook", "in-the-yaml", "master-token"):
        assert secret not in whole
    assert files["logs/master.log"] == f"started with {REMOVED}\n"
    printed = files["experiments/12/output.txt"].split("\n")
    assert [line.rpartition(" ")[2] for line in printed] == [REMOVED, REMOVED]
    assert json.loads(files["variables.json"])["OMP_NUM_THREADS"] == "3"
    assert "HOME" not in json.loads(files["variables.json"])
    assert "token" not in json.loads(files["master/info.json"])
    assert [*json.loads(files["versions.json"])["packages"]] == ["det-jupyter", "pytest"]
    assert files["experiments/12/config.yaml"].startswith("records_per_epoch: 1437\n")
    assert json.loads(files["experiments/12/checkpoints.json"])[0]["steps_completed"] == 10


@pytest.mark.parametrize(
    ("named", "asked"),
    [
        ({"ids": []}, "experiments?limit=3&"),
        ({}, "experiments?limit=3&"),
        ({"ids": [[range(12, 13)]]}, "experiments/12"),
        ({"id": 1}, "trials/1"),
    ],
)
def test_the_newest_experiments_are_in_it_unless_others_are_named(
    named: Any, asked: str, bundled: Bundled
) -> None:
    bundled.wired.answers["1"] = bundled.wired.answers["experiments"].trials[0]
    bundled.wired.answers["12"] = own = bundled.wired.answers["experiments"]
    bundled.wired.answers["7"] = own.model_copy(update={"id": 7})
    bundled.wired.answers["experiments"] = rows_found(12)
    _, files = bundled.made(**named)
    first = bundled.wired.asked[0][1]
    assert first == asked or ("limit=3" in first and "archived=true" in first)
    assert {name.split("/")[1] for name in files if name.startswith("experiments/")} <= {"12", "7"}
    assert any(name.startswith("experiments/") for name in files)


def test_without_a_master_there_is_a_bundle_too(
    bundled: Bundled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(query: Any) -> Any:
        raise MasterUnreachable("no master runs")

    bundled.master = None
    monkeypatch.setattr(bundled.wired.client, "find", unreachable)
    (tmp_path / "reports").mkdir()
    said, files = bundled.made("reports", ids=[])
    assert files.keys() == {
        "README.txt", "versions.json", "variables.json", "logs/master.log", "problems.txt",
    }  # fmt: skip
    assert files["problems.txt"] == "master and experiments: no master runs\n"
    assert said.startswith("Wrote reports/det-support-")
    assert bundled.made("b.tar.gz")[0].startswith("Wrote b.tar.gz (5 ")
    with pytest.raises(DetError, match="b/c: cannot be written: No such file"):
        bundled.made("b/c")


@pytest.mark.parametrize("kept", [b"{", b"{}"])
def test_what_is_left_of_variables_that_cannot_be_read_is_named(
    kept: bytes, bundled: Bundled, tmp_path: Path
) -> None:
    blob = BlobStore(tmp_path / "data" / "blobs").put(kept)
    bundled.offer(bundled.capsule.model_copy(update={"environment": blob}), {})
    _, files = bundled.made(ids=[[range(12, 13)]])
    assert files["problems.txt"].startswith("variables of 12: ")
    assert "experiments/12/config.yaml" in files
