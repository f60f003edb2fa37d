"""Two users of one computer, each with a master of their own, on the same CPU places.

    python -m tests.sharing [--trials 100] [--slots 8] [--seconds 2]

Both users submit at the same moment a search whose trials take one slot and sleep. As root, the
users are `nobody` and `daemon`, if they can execute `--python`; otherwise they are two homes of
this user. Each trial makes a file for its slot, which must not exist, and removes it at its end:
so two trials on one slot are found. Prints slots and queue of one user in the middle, and a line
of JSON. Exits with 1 if two trials had a slot, or the mean waits differ by over 20 %.
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
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
NAMES = ("nobody", "daemon")
TRIAL = """#!/bin/sh
set -C  # a file that exists is not replaced
begun=$(date +%s.%N)
echo $$ > "$1/busy-$DET_SLOT_IDS" 2>/dev/null || echo "$DET_SLOT_IDS" > "$1/twice-$$"
sleep "$3"
rm "$1/busy-$DET_SLOT_IDS"
echo "$begun" > "$1/done-$2-$DET_TRIAL_ID"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """One of the users.

    Args:
        name: Its name.
        home: Its home; what trials write is in the folder above.
        python: The interpreter of its processes.
        slots: Number of CPU places.
        uid: The account of its processes; None: that of this process.
    """

    name: str
    home: Path
    python: str
    slots: int
    uid: int | None

    def run(self, *words: str) -> str:
        """Run an interpreter as this user; return what it prints."""
        environ = {
            **os.environ,
            "HOME": str(self.home),
            "TMPDIR": str(self.home),
            "DET_JUPYTER_HOME": str(self.home / "det"),
            "DET_JUPYTER_CPU_SLOTS": str(self.slots),
            "DET_JUPYTER_SHARED_FOLDER": str(self.home.parent / "shared"),
            "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(os.path.isdir, sys.path)]),
        }
        done = subprocess.run(
            [self.python, *words], env=environ, cwd=self.home, text=True, capture_output=True,
            user=self.uid, group=self.uid, check=False,
        )  # fmt: skip
        if done.returncode:
            raise SystemExit(f"{' '.join(words)}: {done.stdout}{done.stderr}")
        return done.stdout

    def det(self, *words: str) -> str:
        """Run `det` as this user; return what it prints."""
        return self.run("-m", "det_jupyter", *words)

    def submit(self, trials: int, seconds: float) -> str:
        """Submit the user's trials; return what `det` prints."""
        (self.home / "code").mkdir()
        (self.home / "code" / "trial.sh").write_text(TRIAL)
        config = {
            "name": f"secret of {self.name}",
            "entrypoint": f"sh trial.sh {self.home.parent} {self.name} {seconds}",
            "hyperparameters": {"x": {"type": "double", "minval": 0.0, "maxval": 1.0}},
            "resources": {"slots_per_trial": 1},
            "searcher": {
                "name": "random", "metric": "loss", "max_trials": trials,
                "max_length": {"batches": 1}, "max_concurrent_trials": trials,
            },
        }  # fmt: skip
        (self.home / "config.yaml").write_text(yaml.safe_dump(config))
        return self.det("e", "create", "config.yaml", "code")


def make_users(folder: Path, python: str, slots: int) -> list[User]:
    """Return the users, with homes in a folder."""
    uids = {name: pwd.getpwnam(name).pw_uid if os.geteuid() == 0 else None for name in NAMES}
    for name in NAMES:
        (folder / name).mkdir(mode=0o700)
    try:
        subprocess.run([python, "-c", ""], user=uids[NAMES[0]], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        uids = dict.fromkeys(NAMES)
    for name, uid in uids.items():
        os.chown(folder / name, *([-1, -1] if uid is None else [uid, uid]))
    return [
        User(name=name, home=folder / name, python=python, slots=slots, uid=uid)
        for name, uid in uids.items()
    ]


def compare(folder: Path, users: Sequence[User], trials: int, seconds: float) -> tuple[int, float]:
    """Run the trials of both users; return how many had a slot that was taken, and the gap."""
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda user: user.det("master", "start"), users))
        time.sleep(3)  # agents start
        submitted = time.time()
        list(pool.map(lambda user: user.submit(trials, seconds), users))
    is_shown = False
    while (num := len(list(folder.glob("done-*")))) < 2 * trials:
        time.sleep(0.5)
        if num >= trials and not is_shown:
            is_shown = True
            print(users[1].det("slots"), users[1].det("queue"), sep="\n", flush=True)
    begun = {
        user.name: [float(path.read_text()) for path in folder.glob(f"done-{user.name}-*")]
        for user in users
    }
    waits = [statistics.mean(times) - submitted for times in begun.values()]
    num_twice, gap = len(list(folder.glob("twice-*"))), 1 - min(waits) / max(waits)
    print(json.dumps({"twice": num_twice, "mean_wait_s": waits, "gap": round(gap, 3)}))
    return num_twice, gap


def main(argv: Sequence[str] | None = None) -> int:
    """Run the two users and print the numbers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--python", default=sys.executable, help="which both users may execute")
    options = parser.parse_args(argv)
    folder = Path(tempfile.mkdtemp(prefix="sh-"))  # the sockets are below it: it has to be short
    folder.chmod(0o1777)
    users = make_users(folder, options.python, options.slots)
    try:
        num_twice, gap = compare(folder, users, options.trials, options.seconds)
    finally:
        for user in users:
            user.det("master", "stop", "--everything")
        shutil.rmtree(folder)
    return int(num_twice > 0 or gap > 0.2)


if __name__ == "__main__":
    sys.exit(main())
