"""`--local --test-mode`: one batch of a trial, or the whole script, here and without a master."""

from __future__ import annotations

import importlib
import os
import random
import shlex
import subprocess
import sys
from pathlib import Path

from det_jupyter.config import ExperimentConfig
from det_jupyter.config.hyperparameters import sample_hparams
from det_jupyter.entrypoints import Captured, Command, Imported, Program, parse_entrypoint
from det_jupyter.errors import ConfigError


def try_here(config: ExperimentConfig, folder: Path) -> int:
    """Train one batch, or run the script or command; return the exit status.

    Raises:
        ConfigError: The entrypoint is a cell's.
    """
    match parse_entrypoint(config.entrypoint):
        case Captured(name):
            raise ConfigError([f"entrypoint: got {name}, a name; expected module:{name}"])
        case Imported(module=module, name=name):
            return _train_one_batch(config, folder, module, name)
        case Program(target=target, is_module=is_module, args=args):
            words = ["-m", target] if is_module else [target]
            return subprocess.call([sys.executable, *words, *args], cwd=folder)
        case Command(argv):
            return subprocess.call(argv, cwd=folder)


def _train_one_batch(config: ExperimentConfig, folder: Path, module: str, name: str) -> int:
    os.chdir(folder)
    sys.path.insert(0, os.getcwd())
    found = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    if not isinstance(found, type):
        raise ConfigError(
            [f"entrypoint: {name} is a function: `python -c {shlex.quote(_line(module, name))}` "
             "in its folder runs it without a master"]
        )  # fmt: skip
    # By name: the class has torch imported, which this command has not.
    library = importlib.import_module("det_jupyter.pytorch")
    hparams = sample_hparams(config.hyperparameters, random.Random(0))
    library.try_out(found, config, hparams, batches=1)
    return 0


def _line(module: str, name: str) -> str:
    return f"from {module} import {name}; {name}()"
