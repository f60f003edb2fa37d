"""`%%det_experiment --local`: a few batches of the trial right here, before it is submitted."""

from __future__ import annotations

import argparse
import importlib
import random
import time
from typing import Any

from det_jupyter.config.hyperparameters import sample_hparams
from det_jupyter.notebook.submit.checks import find_class_problems
from det_jupyter.notebook.submit.submitting import print_notices, read_draft


def run_local(cell: str, options: argparse.Namespace, shell: Any) -> Any:
    """Train a few batches of one trial of the experiment in this kernel and return the trial.

    Hyperparameters that are ranges are drawn.

    Nothing is submitted; breakpoints and `%debug` work as in any cell.

    Raises:
        ConfigError: Everything that is wrong with the configuration or the entrypoint.
    """
    __tracebackhide__ = True  # IPython: the cell, and then the user's own code
    draft = read_draft(cell, options)
    config, problems = draft.parse(default_seed=int(time.time()) % 2**31)
    name = draft.merged().get("entrypoint")
    if isinstance(name, str) and name.isidentifier():
        problems += find_class_problems(name, shell.user_ns)
    if problems or config is None:
        raise draft.located(problems)
    entrypoint = shell.user_ns[config.entrypoint]
    print_notices(draft)
    if not isinstance(entrypoint, type):
        print(f"{config.entrypoint} is a function: call it, {config.entrypoint}()")
        return None
    # By name: only here does the notebook need the training library, which the class has loaded.
    library = importlib.import_module("det_jupyter.pytorch")
    hparams = sample_hparams(config.hyperparameters, random.Random(0))
    return library.try_out(entrypoint, config, hparams, batches=options.local)
