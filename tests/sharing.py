"""Two users of one computer, each with a master of their own, on the same CPU places.

    python -m tests.sharing [--trials 100] [--slots 8] [--seconds 1]

Both users submit at the same moment a search whose trials take one slot and sleep. As root, the
users are `nobody` and `daemon`; otherwise they are two homes of this user. Each trial makes a file
for its slot, which must not exist, and removes it at its end; so two trials on one slot are found.
Prints slots and queue of one user in the middle, how long the trials of each have waited, and a
line of JSON. Exits with 1 if two trials had a slot, or the means of the waits differ by over 20 %.
"""

from __future__ import annotations

import argparse
import json
import os
import pwd
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
ACCOUNTS = ("nobody", "daemon")
TRIAL = """#!/bin/sh
set -C  # a file that exists is not replaced
begun=$(date +%s.%N)
echo $$ > "$1/busy-$DET_SLOT_IDS" 2>/dev/null || echo "$DET_SLOT_IDS" >> "$1/twice-$$"
sleep "$3"
rm "$1/busy-$DET_SLOT_IDS"
echo "$2 $DET_SLOT_IDS $begun $(date +%s.%N)" > "$1/done-$2-$DET_TRIAL_ID"
"""


def users(folder: Path, slots: int, python: str) -> list[tuple[dict[str, str], Mapping[str, int]]]:
    """Return the environment of each user, and the account that its processes run as."""
    found = []
    for name in ACCOUNTS:
        home = folder / name
        home.mkdir(mode=0o700)
        account: dict[str, int] = {}
        if os.geteuid() == 0:
            entry = pwd.getpwnam(name)
            account = {"user": entry.pw_uid, "group": entry.pw_gid}
            os.chown(home, entry.pw_uid, entry.pw_gid)
        environ = {
            **os.environ,
            "HOME": str(home),
            "TMPDIR": str(home),
            "DET_JUPYTER_HOME": str(home / "det"),
            "DET_JUPYTER_CPU_SLOTS": str(slots),
            "DET_JUPYTER_SHARED_FOLDER": str(folder / "shared"),
            "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(os.path.isdir, sys.path)]),
            "OMP_NUM_THREADS": "1",
            "PYTHON": python,
        }
        found.append((environ, account))
    return found


def det(user: tuple[dict[str, str], Mapping[str, int]], *words: str) -> str:
    """Run `det` as a user; return what it prints."""
    environ, account = user
    command = [environ["PYTHON"], "-m", "det_jupyter", *words]
    done = subprocess.run(
        command, env=environ, cwd=environ["HOME"], text=True, capture_output=True, check=False,
        **account,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"det {' '.join(words)}: {done.stdout}{done.stderr}")
    return done.stdout


def submit(user: tuple[dict[str, str], Mapping[str, int]], trials: int, seconds: float) -> str:
    """Submit a user's trials; return what `det` prints."""
    name = Path(user[0]["HOME"]).name
    code = Path(user[0]["HOME"]) / "code"
    code.mkdir()
    (code / "trial.sh").write_text(TRIAL)
    (code.parent / "config.yaml").write_text(
        yaml.safe_dump(
            {
                "name": f"secret of {name}",
                "entrypoint": f"sh trial.sh {code.parent.parent} {name} {seconds}",
                "hyperparameters": {"x": {"type": "double", "minval": 0.0, "maxval": 1.0}},
                "resources": {"slots_per_trial": 1},
                "searcher": {
                    "name": "random",
                    "metric": "loss",
                    "max_trials": trials,
                    "max_length": {"batches": 1},
                    "max_concurrent_trials": trials,
                },
            }
        )
    )
    return det(user, "e", "create", "config.yaml", "code")


def waits(folder: Path, name: str, submitted: float) -> list[float]:
    """Return how long each trial of a user has waited, in seconds."""
    done = [path.read_text().split() for path in folder.glob(f"done-{name}-*")]
    return [float(begun) - submitted for _, _, begun, _ in done]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the two users and print the numbers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--python", default=sys.executable, help="which both users may execute")
    options = parser.parse_args(argv)
    folder = Path(tempfile.mkdtemp(prefix="sh-"))
    folder.chmod(0o1777)
    both = users(folder, options.slots, options.python)
    try:
        for user in both:  # so that the masters and agents run
            det(user, "master", "start")
        time.sleep(3)
        submitted = time.time()
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda user: submit(user, options.trials, options.seconds), both))
        is_shown = False
        while (num := len(list(folder.glob("done-*")))) < 2 * options.trials:
            time.sleep(1)
            if num >= options.trials and not is_shown:
                is_shown = True
                print(det(both[1], "slots"), det(both[1], "queue"), sep="\n", flush=True)
        num_twice = len(list(folder.glob("twice-*")))
        mean = [statistics.mean(waits(folder, name, submitted)) for name in ACCOUNTS]
        gap = abs(mean[0] - mean[1]) / max(mean)
        print(json.dumps({"twice": num_twice, "mean_wait_s": mean, "gap": round(gap, 3)}))
        return int(bool(num_twice) or gap > 0.2)
    finally:
        for user in both:
            det(user, "master", "stop", "--everything")
        shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(main())
