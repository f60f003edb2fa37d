"""Copies a folder to a bucket or from it, with one of several libraries; for `storage`.

    python -m tests.benchmarks.storage_clients CLIENT up|down FOLDER LOCATION NAME

Each has parts of the same size, as many at once and as many files at once. Prints a line of JSON:
seconds of the copy, and CPU seconds and peak memory in MB of the process that transfers.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil

from det_jupyter.storage.buckets.process import transfers
from det_jupyter.storage.buckets.storage import BucketStorage

PART_BYTES, PARTS, FILES, RANGES = 8 << 20, 4, 3, 8  # as in storage/buckets/objects.py


class Copies:
    """Copies between a folder and the objects below a name in a bucket.

    Args:
        folder: The folder.
        location: Location of the bucket.
        name: What the names of the objects begin with.
    """

    def __init__(self, folder: Path, location: str, name: str) -> None:
        self.folder = folder
        self.location = location
        self.name = name
        self.endpoint = location.removeprefix("s3+").rpartition("/")[0]
        self.bucket = urlsplit(location).path.strip("/")

    def ours(self, way: str) -> Callable[[], object]:
        storage = BucketStorage(self.location)
        storage.files("nothing")  # starts the process
        if way == "up":
            return lambda: storage.store(self.name, self.folder)
        return lambda: storage.download(self.name, self.folder)

    def obstore(self, way: str) -> Callable[[], object]:
        import obstore

        from det_jupyter.storage.buckets.opening import open_bucket

        store = open_bucket(self.location)

        def put(name: str) -> None:
            obstore.put(
                store, f"{self.name}/{name}", self.folder / name,
                chunk_size=PART_BYTES, max_concurrency=PARTS,
            )  # fmt: skip

        def get(job: tuple[str, int, int]) -> None:
            name, start, end = job
            part = obstore.get_range(store, f"{self.name}/{name}", start=start, end=end)
            with (self.folder / name).open("rb+") as file:
                os.pwrite(file.fileno(), memoryview(part), start)

        def download() -> None:
            found = [meta for some in obstore.list(store, prefix=f"{self.name}/") for meta in some]
            sizes = {meta["path"].rpartition("/")[2]: meta["size"] for meta in found}
            for name in sizes:
                (self.folder / name).write_bytes(b"")
            jobs = [
                (name, start, min(start + PART_BYTES, size))
                for name, size in sizes.items()
                for start in range(0, size, PART_BYTES)
            ]
            _at_once(RANGES, get, jobs)

        list(obstore.list(store, prefix="nothing"))
        return (lambda: _at_once(FILES, put, os.listdir(self.folder))) if way == "up" else download

    def boto3(self, way: str) -> Callable[[], object]:
        import boto3
        from boto3.s3.transfer import TransferConfig

        client = boto3.client("s3", endpoint_url=self.endpoint)
        parts = PARTS if way == "up" else RANGES
        config = TransferConfig(
            multipart_threshold=PART_BYTES, multipart_chunksize=PART_BYTES, max_concurrency=parts
        )
        found = client.list_objects_v2(Bucket=self.bucket, Prefix=f"{self.name}/")
        names = [each["Key"].rpartition("/")[2] for each in found.get("Contents", [])]

        def put(name: str) -> None:
            path = str(self.folder / name)
            client.upload_file(path, self.bucket, f"{self.name}/{name}", Config=config)

        def get(name: str) -> None:
            path = str(self.folder / name)
            client.download_file(self.bucket, f"{self.name}/{name}", path, Config=config)

        if way == "up":
            return lambda: _at_once(FILES, put, os.listdir(self.folder))
        return lambda: _at_once(FILES, get, names)

    def s3fs(self, way: str) -> Callable[[], object]:
        import s3fs

        system = s3fs.S3FileSystem(endpoint_url=self.endpoint, max_concurrency=PARTS)
        there, here = f"{self.bucket}/{self.name}/", f"{self.folder}/"
        system.ls(self.bucket)
        if way == "up":
            return lambda: system.put(
                here, there, recursive=True, batch_size=FILES, chunksize=PART_BYTES
            )
        return lambda: system.get(there, here, recursive=True, batch_size=FILES)


def _at_once(num: int, do: Callable[[Any], object], items: Any) -> None:
    with ThreadPoolExecutor(num) as threads:
        list(threads.map(do, items))


def measured(copy: Callable[[], object]) -> dict[str, float]:
    """Copy, and return what that takes, in the process that transfers if there is one."""
    process = psutil.Process(transfers.pid)
    before, began = process.cpu_times(), time.perf_counter()
    copy()
    seconds, after = time.perf_counter() - began, process.cpu_times()
    return {
        "seconds": seconds,
        "cpu_s": after.user + after.system - before.user - before.system,
        "peak_mb": peak_mb(process.pid),
    }


def peak_mb(pid: int) -> float:
    """Return the most memory that a process has had; 0.0 where there is no /proc."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def main() -> None:
    """Copy, and print what it takes."""
    client, way, folder, location, name = sys.argv[1:]
    copy = getattr(Copies(Path(folder), location, name), client)(way)
    print(json.dumps(measured(copy)))
    transfers.close()


if __name__ == "__main__":
    main()
