"""Reads a dump of Determined's PostgreSQL database, without a server.

    plain (.sql, .sql.gz)              read as it is
    custom, tar or directory           by pg_restore, which turns it into plain SQL

The rows are in `COPY table (columns) FROM stdin;` blocks. Those of the tables that are needed go
into a temporary SQLite file, as a dump may be larger than the memory, and are queried there.
"""

from __future__ import annotations

import gzip
import json
import re
import shutil
import sqlite3
import subprocess
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from det_jupyter.client.imports.determined.records import (
    FoundCheckpoint,
    FoundExperiment,
    FoundModel,
    FoundReport,
    FoundTrial,
    FoundVersion,
    line_of,
    refusing,
    seconds,
    steps_of,
)
from det_jupyter.contract.messages import ImportedLine
from det_jupyter.contract.values.text import size
from det_jupyter.errors import DetError

_TABLES = {  # with their columns
    "metrics": "id, trial_id, end_time, metrics, total_batches, archived, metric_group",
    "cluster_id": "cluster_id",
    "experiments": "id, state, config, notes, archived, start_time, end_time, model_definition",
    "runs": "id, experiment_id, state, hparams, restarts, total_batches, start_time, end_time",
    "checkpoints_v2": "uuid, report_time, state, resources, metadata",
    "run_checkpoints": "run_id, checkpoint_id",
    "run_id_task_id": "run_id, task_id",
    "task_logs": "id, task_id, timestamp, rank_id, level, log",
    "models": "id, name, description, notes, labels, metadata",
    "model_versions": "version, model_id, checkpoint_uuid, name, comment, notes, labels, metadata",
}
_NEEDED = ("cluster_id", "experiments", "runs")  # the others may be left out of a dump
_PARTS = {"raw_steps": "training", "raw_validations": "validation", "generic_metrics": ""}
_INDEXES = {
    "metrics": "trial_id",
    "experiments": "id",
    "runs": "experiment_id",
    "run_checkpoints": "run_id",
    "run_id_task_id": "run_id",
    "task_logs": "task_id",
    "checkpoints_v2": "uuid",
}
_INSERT = re.compile(rb"INSERT INTO (?:\w+\.)?(experiments|runs) ")
_COPY = re.compile(rb'COPY (?:"?\w+"?\.)?"?(\w+)"? \((.*)\) FROM stdin;')
_ESCAPE = re.compile(r"\\(.)")
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_WHOLE = b"-- PostgreSQL database dump complete"
_ITEM = re.compile(r'"((?:[^"\\]|\\.)*)"|([^,{}]+)')  # of an array
_LONGEST_LINE = 1 << 29  # bytes; the longest row has a context directory of 95 MiB, in hex digits
_MAGIC = {b"PGDMP": "custom", b"\x1f\x8b": "gzip"}


class DeterminedDump:
    """A DeterminedSource: the file of a dump. A context manager, which reads the whole file once.

    Raises:
        DetError: There is no such file, it is no dump of Determined, or it is not whole.
    """

    is_live = False

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._path = path
        self._rows = sqlite3.connect("")  # a temporary file
        self._rows.row_factory = sqlite3.Row

    def __enter__(self) -> DeterminedDump:
        try:
            self._read()
        except BaseException as error:  # whatever it is, the file is not needed any more
            self._rows.close()
            if isinstance(error, OSError | EOFError | ValueError | zlib.error | sqlite3.Error):
                raise DetError(f"{self.name} cannot be read: {error}") from None
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self._rows.close()

    @property
    def cluster_id(self) -> str:
        """The identity of the master."""
        return str(self._query("SELECT cluster_id FROM cluster_id")[0]["cluster_id"])

    def experiments(self) -> Iterator[FoundExperiment]:
        """Yield all experiments, by their ids."""
        columns = _TABLES["experiments"].removesuffix(", model_definition")
        for row in self._rows.execute(f"SELECT {columns} FROM experiments ORDER BY id"):
            with refusing():
                found = FoundExperiment(
                    id=row["id"],
                    config=json.loads(row["config"]),
                    state=row["state"],
                    notes=row["notes"] or "",
                    is_archived=row["archived"] == "t",
                    created_at=seconds(row["start_time"]),
                    ended_at=seconds(row["end_time"]) if row["end_time"] else None,
                )
            yield found

    def code(self, experiment_id: int) -> bytes:
        """Return the context directory."""
        found = self._query("SELECT model_definition FROM experiments WHERE id=?", experiment_id)
        with refusing():
            return bytes.fromhex((found[0]["model_definition"] or "").removeprefix("\\x"))

    def trials(self, experiment_id: int) -> Iterator[FoundTrial]:
        """Yield the trials of an experiment, by their ids."""
        with refusing():
            for row in self._query(
                "SELECT * FROM runs WHERE experiment_id=? ORDER BY id", experiment_id
            ):
                found = "SELECT DISTINCT metric_group FROM metrics WHERE trial_id=?"
                groups = {each["metric_group"] or "" for each in self._query(found, row["id"])}
                tasks = self._query("SELECT task_id FROM run_id_task_id WHERE run_id=?", row["id"])
                yield FoundTrial(
                    id=row["id"],
                    state=row["state"],
                    hparams=json.loads(row["hparams"] or "{}"),
                    restarts=row["restarts"] or 0,
                    steps_completed=row["total_batches"] or 0,
                    created_at=seconds(row["start_time"]),
                    ended_at=seconds(row["end_time"]) if row["end_time"] else None,
                    groups=tuple(sorted(groups)),
                    task_ids=tuple(each["task_id"] for each in tasks),
                )

    def reports(self, trial: FoundTrial, group: str) -> Iterator[FoundReport]:
        """Yield the metrics of a group."""
        with refusing():
            found = """SELECT * FROM metrics
                WHERE trial_id=? AND metric_group=? AND archived='f' ORDER BY id"""
            for row in self._rows.execute(found, (trial.id, group)):
                yield FoundReport(
                    id=row["id"],
                    group=group,
                    at=seconds(row["end_time"]),
                    steps_completed=row["total_batches"],
                    metrics=json.loads(row["metrics"] or "{}"),
                )

    def checkpoints(self, experiment_id: int) -> Iterator[FoundCheckpoint]:
        """Yield the checkpoints of an experiment."""
        with refusing():
            found = """SELECT c.*, runs.id AS run FROM checkpoints_v2 c
                JOIN run_checkpoints rc ON rc.checkpoint_id = c.uuid
                JOIN runs ON runs.id = rc.run_id
                WHERE runs.experiment_id=? ORDER BY c.report_time, c.uuid"""
            for row in self._query(found, experiment_id):
                yield FoundCheckpoint(
                    uuid=row["uuid"],
                    trial_id=row["run"],
                    state=row["state"],
                    steps_completed=steps_of(json.loads(row["metadata"] or "{}")),
                    size_bytes=sum(map(int, json.loads(row["resources"] or "{}").values())),
                    created_at=seconds(row["report_time"]),
                )

    def log(self, trial: FoundTrial) -> Iterator[ImportedLine]:
        """Yield the log of a trial."""
        with refusing():
            for task_id in trial.task_ids:
                found = "SELECT * FROM task_logs WHERE task_id=? ORDER BY id"
                for row in self._rows.execute(found, (task_id,)):
                    if row["timestamp"]:
                        yield line_of(row["timestamp"], row["rank_id"], row["level"], row["log"])

    def models(self) -> Iterator[FoundModel]:
        """Yield all models, by name."""
        with refusing():
            for row in self._query("SELECT * FROM models ORDER BY name"):
                found = "SELECT * FROM model_versions WHERE model_id=? ORDER BY version"
                versions = [
                    FoundVersion(
                        number=each["version"],
                        uuid=each["checkpoint_uuid"],
                        **_described(each, "name", "comment"),
                    )
                    for each in self._query(found, row["id"])
                ]
                yield FoundModel(**_described(row, "name", "description"), versions=versions)

    def _query(self, found: str, *given: Any) -> list[sqlite3.Row]:
        return self._rows.execute(found, given).fetchall()

    def _read(self) -> None:
        for table, columns in _TABLES.items():
            typed = ", ".join(f"{name} {_type_of(name)}" for name in columns.split(", "))
            self._rows.execute(f"CREATE TABLE {table} ({typed})")
        seen: set[str] = set()
        is_whole = False
        with self._open() as opened:
            file = self._lines_of(opened)
            for line in file:
                is_whole |= line.startswith(_WHOLE)
                if _INSERT.match(line):
                    raise DetError(f"{self.name} was made with --inserts; make it without")
                if match := _COPY.match(line):
                    self._copy(match, file, seen)
        if not self._query("SELECT * FROM cluster_id WHERE cluster_id <> ''"):
            seen.discard("cluster_id")
        if missing := [name for name in _NEEDED if name not in seen]:
            raise DetError(
                f"{self.name} is no dump of the database of Determined 0.38: it has no rows of "
                f"{', '.join(missing)}. Of an earlier version: start a master of 0.38 with the "
                "database once, which converts it"
            )
        if not is_whole:
            raise DetError(f"{self.name} is not whole: its end is missing; make the dump again")
        for table, column in _INDEXES.items():
            self._rows.execute(f"CREATE INDEX {table}_by ON {table} ({column})")

    def _copy(self, match: re.Match[bytes], file: Iterator[bytes], seen: set[str]) -> None:
        """Store the rows of a block, or pass over them."""
        table = match[1].decode()
        given = [name.strip(' "') for name in match[2].decode().split(",")]
        rows = _rows_of(file, len(given), f"{self.name}: table {table}")
        target = "metrics" if table in _PARTS else table
        if target not in _TABLES:
            for _ in rows:
                pass
            return
        if table in seen:
            raise DetError(f"{self.name} has several databases; make a dump of Determined's alone")
        seen.add(table)
        wanted = _TABLES[target].split(", ")
        places = [given.index(name) if name in given else None for name in wanted]
        marks = ", ".join("?" * len(wanted))
        self._rows.executemany(
            f"INSERT INTO {target} VALUES ({marks})",
            ([None if p is None else _value(row[p]) for p in places] for row in rows),
        )
        if group := _PARTS.get(table):  # rows of earlier versions have none
            self._rows.execute(
                "UPDATE metrics SET metric_group=? WHERE metric_group IS NULL", (group,)
            )

    def _lines_of(self, file: IO[bytes]) -> Iterator[bytes]:
        while line := file.readline(_LONGEST_LINE):
            if len(line) == _LONGEST_LINE:
                raise DetError(
                    f"{self.name} has a line of {size(_LONGEST_LINE)} or more, which no dump of "
                    "Determined's database has: it is another file, or damaged"
                )
            yield line

    @contextmanager
    def _open(self) -> Iterator[IO[bytes]]:
        """Open the dump as plain SQL."""
        if self._path.is_dir():
            kind = "custom"
        else:
            with self._path.open("rb") as file:
                start = file.read(512)
            magic = (kind for mark, kind in _MAGIC.items() if start.startswith(mark))
            kind = next(magic, "custom" if start[257:262] == b"ustar" else "plain")
        if kind == "custom":
            with self._restored() as lines:
                yield lines
        elif kind == "gzip":
            with gzip.open(self._path) as unpacked:
                yield cast("IO[bytes]", unpacked)
        else:
            with self._path.open("rb") as file:
                yield file

    @contextmanager
    def _restored(self) -> Iterator[IO[bytes]]:
        """Yield what pg_restore prints."""
        if shutil.which("pg_restore") is None:
            raise DetError(
                f"{self.name} is not plain SQL, and pg_restore, which reads it, is not installed "
                "here; install PostgreSQL's client, or make the dump with pg_dump --format=plain"
            )
        tables = [f"--table={name}" for name in (*_TABLES, *_PARTS)]
        command = ["pg_restore", "--data-only", "--file=-", *tables, "--", self.name]
        with (
            tempfile.TemporaryFile() as said,
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said) as process,
        ):
            assert process.stdout is not None
            try:
                yield process.stdout
            except BaseException:  # also an interrupt: the process would wait for its reader
                process.kill()
                raise
            if process.wait() != 0:
                said.seek(0)
                first = said.read(500).decode(errors="replace").strip().partition("\n")[0]
                raise DetError(f"{self.name} cannot be read: {first}")


def _type_of(column: str) -> str:
    is_number = column in ("id", "rank_id", "restarts", "version") or column.endswith(
        ("trial_id", "experiment_id", "model_id", "run_id", "batches")
    )
    return "INTEGER" if is_number else "TEXT"


def _rows_of(file: Iterator[bytes], num_columns: int, where: str) -> Iterator[list[bytes]]:
    for line in file:
        if line == b"\\.\n":
            return
        fields = line.removesuffix(b"\n").split(b"\t")
        if len(fields) != num_columns or not line.endswith(b"\n"):
            break
        yield fields
    raise DetError(f"{where}: the dump ends within it, or is damaged; make the dump again")


def _value(field: bytes) -> str | None:
    r"""Return a field of a row.

    >>> _value(rb"a\tb\\x"), _value(rb"\N")
    ('a\tb\\x', None)
    """
    if field == rb"\N":
        return None
    return _ESCAPE.sub(
        lambda found: _ESCAPES.get(found[1], found[1]), field.decode(errors="replace")
    )


def _items(array: str | None) -> list[str]:
    r"""Return the items of an array of texts.

    >>> _items(r'{plain,"two words","a \"quote\""}'), _items("{}")
    (['plain', 'two words', 'a "quote"'], [])
    """
    found = _ITEM.findall((array or "")[1:-1])
    return [_ESCAPE.sub(r"\1", quoted) or plain for quoted, plain in found]


def _described(row: sqlite3.Row, *names: str) -> dict[str, Any]:
    """Return the fields that models and versions have: texts, labels and metadata."""
    texts = {name: row[name] or "" for name in (*names, "notes")}
    metadata = json.loads(row["metadata"] or "{}")
    return {**texts, "labels": _items(row["labels"]), "metadata": metadata}
