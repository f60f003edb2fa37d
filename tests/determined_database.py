"""The rows of determined_world.py in a PostgreSQL that is started for them, and dumps of it.

`python -m tests.determined_database` makes the dump of the fixtures anew.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.determined_world import ROWS

FIXTURES = Path(__file__).parent / "fixtures" / "determined_database"
PLAIN = FIXTURES / "plain.sql"
_PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin"))  # of Debian, beside the PATH


def find_program(name: str) -> str | None:
    """Return the path of a program of PostgreSQL; None if it is not installed."""
    return shutil.which(name, path=os.pathsep.join([*map(str, _PROGRAMS), os.environ["PATH"]]))


@contextmanager
def database() -> Iterator[list[str]]:
    """Yield the options with which programs connect to a database that has all rows."""
    with tempfile.TemporaryDirectory(prefix="pg-") as folder:
        user = None
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            user = pwd.getpwnam("nobody").pw_name
            shutil.chown(folder, user)
        data = str(Path(folder, "data"))
        options = ["-h", folder, "-U", "det", "-d", "postgres"]

        def run(program: str, *given: str, stdin: str = "") -> None:
            found = find_program(program)
            assert found is not None, program
            subprocess.run(
                [found, *given], input=stdin, text=True, user=user, check=True, cwd=folder,
                stdout=subprocess.DEVNULL, extra_groups=None if user is None else [],
            )  # fmt: skip

        run("initdb", "-D", data, "-U", "det", "--no-sync", "-A", "trust", "-E", "UTF8")
        server = f"-c listen_addresses= -c fsync=off -k {folder}"
        run("pg_ctl", "-D", data, "-o", server, "-l", str(Path(folder, "log")), "-w", "start")
        try:
            statements = (FIXTURES / "schema.sql").read_text() + "".join(_inserts())
            run("psql", *options, "-q", "-v", "ON_ERROR_STOP=1", "-f", "-", stdin=statements)
            yield options
        finally:
            run("pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")


def dump(options: list[str], file: Path, form: str) -> None:
    """Write a dump; `form` is plain, custom, tar or directory."""
    program = find_program("pg_dump")
    assert program is not None
    subprocess.run([program, *options, f"--format={form}", f"--file={file}"], check=True)


def _inserts() -> Iterator[str]:
    for table, rows in ROWS.items():
        for row in rows:
            names = ", ".join(f'"{name}"' for name in row)
            values = ", ".join(map(_literal, row.values()))
            yield f"INSERT INTO public.{table} ({names}) VALUES ({values});\n"


def _literal(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return f"'\\x{value.hex()}'"
    if isinstance(value, list):
        return f"ARRAY[{', '.join(map(_literal, value))}]::text[]"
    if isinstance(value, dict):
        value = json.dumps(value)
    return "'" + str(value).replace("'", "''") + "'"


if __name__ == "__main__":
    with database() as found:
        dump(found, PLAIN, "plain")
