"""What a bucket costs.

    python -m tests.benchmarks.storage [--mb 1024] [--copied-mb 512] [--rounds 3]

"Held" is the time for which a checkpoint of so many MB holds the training up (`begin` and `finish`
of a Saver), and that of a step while the checkpoint is written and uploaded: into a directory, and
into the folder from which it is uploaded to a bucket while the next ones are saved.

"Copied" are files of so many MB together, as one and as eight, to a server that speaks S3 on this
computer (moto) and back: by us, by obstore alone, boto3 and s3fs, in turn, with parts of 8 MiB, as
many at once (storage_clients.py). We compute and compare checksums as well; the others trust the
network. All processes share the cores of this computer with the server, which needs more than the
clients do; CPU seconds are those of the clients. Prints tables, then one line of JSON.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch

from det_jupyter.storage.buckets.process import transfers
from det_jupyter.storage.buckets.storage import BucketStorage
from tests.benchmarks.quick import arguments
from tests.benchmarks.saving_hold import make_saver, timed
from tests.bucket_keys import KEYS as BUCKET_KEYS

QUICK = "--mb 20 --copied-mb 16 --rounds 1"
KEYS = {
    "size_mb", "copied_mb", "held_directory_s", "held_bucket_s", "step_directory_ms",
    "step_bucket_ms", "copies", "up_to_obstore", "down_to_obstore", "peak_mb",
}  # keys of the JSON in the last line  # fmt: skip

CLIENTS = ("ours", "obstore", "boto3", "s3fs")
_SERVER = """
import logging, sys
from tests.bucket_server import serving
logging.getLogger("werkzeug").setLevel(logging.ERROR)
with serving() as server:
    print(server.location, flush=True)
    sys.stdin.read()
"""


@contextmanager
def bucket() -> Iterator[str]:
    """Serve an empty bucket in a process of its own; yield its location."""
    argv = [sys.executable, "-c", _SERVER]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as own:
        assert own.stdout is not None
        yield own.stdout.readline().strip()
        own.kill()


def measure_held(folder: Path, size_mb: int, rounds: int, location: str) -> tuple[float, float]:
    """Return seconds for which saving holds the training, and the median of a step's beside it.

    Args:
        folder: Where checkpoints are written.
        size_mb: The size of a checkpoint.
        rounds: The number of checkpoints that are measured.
        location: The bucket that they are uploaded to; "" for none.
    """
    saver, step = make_saver(folder, size_mb)
    saver.begin(steps_completed=0)  # its memory is new
    saver.finish()
    held, beside = [], []
    uploads: list[threading.Thread] = []
    for number in range(rounds + 1):
        start = timed(partial(saver.begin, steps_completed=number))
        while not saver.is_written:
            beside.append(timed(step))
        held.append(start + timed(saver.finish))
        for upload in uploads:
            while upload.is_alive():
                beside.append(timed(step))
        done = sorted(folder.iterdir(), key=os.path.getmtime)
        for path in done[:-1]:
            saver.storage.delete(path.name)
        uploads = [threading.Thread(target=_upload, args=(done[-1], location))] if location else []
        for upload in uploads:
            upload.start()
    for upload in uploads:
        upload.join()
    return statistics.median(held[1:]), statistics.median(beside)  # the first: nothing is uploaded


def _upload(folder: Path, location: str) -> None:
    BucketStorage(location).store(folder.name, folder)


def copied(client: str, way: str, folder: Path, location: str, name: str) -> dict[str, float]:
    """Copy a folder in a process of its own; return what that took."""
    argv = [sys.executable, "-m", "tests.benchmarks.storage_clients"]
    argv += [client, way, str(folder), location, name]
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def measure_copies(folder: Path, size_mb: int, rounds: int, clients: list[str]) -> Any:
    """Return, by number of files, client and way, the medians of what copies take."""
    rows: dict[tuple[int, str, str], list[dict[str, float]]] = {}
    for num_files in (1, 8):
        source = folder / str(num_files)
        source.mkdir()
        for number in range(num_files):
            with (source / f"weights-{number}").open("wb") as file:
                for _ in range(size_mb // num_files):
                    file.write(os.urandom(1 << 20))
        for number in range(rounds):
            first = number % len(clients)  # a new server is slower for the first
            with bucket() as location:
                for client in clients[first:] + clients[:first]:
                    (source / "metadata.json").write_text(json.dumps({"uuid": client}))
                    with tempfile.TemporaryDirectory(dir=folder) as back:
                        for way, where in (("up", source), ("down", Path(back))):
                            found = copied(client, way, where, location, client)
                            rows.setdefault((num_files, client, way), []).append(found)
    return {
        key: {name: statistics.median(one[name] for one in found) for name in found[0]}
        for key, found in rows.items()
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--mb", type=int, default=1024)
    parser.add_argument("--copied-mb", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args(arguments(QUICK))
    torch.set_num_threads(1)
    os.environ |= BUCKET_KEYS | {"AWS_REQUEST_CHECKSUM_CALCULATION": "when_required"}
    clients = [name for name in CLIENTS if name == "ours" or importlib.util.find_spec(name)]
    for name in set(CLIENTS) - set(clients):
        print(f"{name} is left out: it is not installed (pip install 'det-jupyter[bench]')")
    result: dict[str, Any] = {"size_mb": given.mb, "copied_mb": given.copied_mb}
    with tempfile.TemporaryDirectory() as temporary:
        for where in ("directory", "bucket"):
            folder = Path(temporary) / where
            with bucket() as location:
                held, step = measure_held(
                    folder, given.mb, given.rounds, location if where == "bucket" else ""
                )
                transfers.close()
            print(f"held: {where:10} {held:8.3f} s   a step beside it {1000 * step:8.2f} ms")
            result |= {f"held_{where}_s": held, f"step_{where}_ms": 1000 * step}
        rows = measure_copies(Path(temporary), given.copied_mb, given.rounds, clients)
    print("\nfiles  client   way   MB/s  CPU s  peak MB")
    for (num, client, way), row in rows.items():
        speed = given.copied_mb / row["seconds"]
        print(
            f"{num:5}  {client:8} {way:4} {speed:6.0f} {row['cpu_s']:6.2f} {row['peak_mb']:8.0f}"
        )
    for way in ("up", "down"):
        result[f"{way}_to_obstore"] = {
            num: rows[num, "ours", way]["seconds"] / rows[num, "obstore", way]["seconds"]
            for num in (1, 8)
        }
    result["copies"] = [
        {"files": num, "client": client, "way": way, **row}
        for (num, client, way), row in rows.items()
    ]
    result["peak_mb"] = max(row["peak_mb"] for (_, who, _), row in rows.items() if who == "ours")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
