"""A trial, as a cell of a notebook defines it, with places where tests insert code.

A place is a comment, such as `# train_batch`. Names in capitals are replaced by numbers.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Mapping
from typing import Any

from det_jupyter.client import Client, Experiment
from tests.trials import capture_trial, create

_SOURCE = """
import ctypes, faulthandler, os, pdb, resource, signal, socket, subprocess, sys, tempfile
import threading, time
import torch
from torch import distributed as dist, nn
from det_jupyter.pytorch import DataLoader, PyTorchCallback, PyTorchTrial

# globals

class Records(torch.utils.data.Dataset):
    def __init__(self, rank):
        self.rank, self.num = rank, 0

    def __len__(self):
        return SIZE

    def __getitem__(self, index):
        self.num += 1
        # record
        return torch.ones(2), torch.zeros(1)


class Callback(PyTorchCallback):
    def on_training_epoch_start(self, epoch_idx):
        # callback
        pass

    def on_validation_end(self, metrics):
        # callback after validation
        pass

    def state_dict(self):
        # checkpoint
        return {"seen": 1}

    def load_state_dict(self, state):
        # load
        pass


class PlacedTrial(PyTorchTrial):
    def __init__(self, context):
        # init
        self.context = context
        self.rank = context.distributed.rank
        self.model = context.wrap_model(nn.Linear(2, 1))
        sgd = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.optimizer = context.wrap_optimizer(sgd)

    def build_callbacks(self):
        return {"callback": Callback()}

    def build_training_data_loader(self):
        # build training
        size = self.context.get_per_slot_batch_size()
        return DataLoader(Records(self.rank), size, num_workers=WORKERS)

    def build_validation_data_loader(self):
        # build validation
        return DataLoader(Records(self.rank), 32)

    def train_batch(self, batch, epoch_idx, batch_idx):  # method
        # each batch
        x, y = batch
        if batch_idx == BATCH and self.rank == RANK:
            pass
            # train_batch
        loss = nn.functional.mse_loss(self.model(x), y)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch, batch_idx):
        x, y = batch
        # evaluate_batch
        return {"error": nn.functional.mse_loss(self.model(x), y)}
"""


def placed(
    code: Mapping[str, str], *, batch: int, rank: int | None = 0, workers: int = 0, size: int = 64
) -> str:
    """Return the source of the trial with the code inserted.

    Args:
        code: The code by place.
        batch: The batch in which the code at `train_batch` runs.
        rank: The rank that runs the code; None: all ranks.
        workers: Loader workers of each rank.
        size: Number of records.
    """
    text = _SOURCE
    for place, lines in code.items():
        found = re.search(rf"^( *)# {place}$", text, re.MULTILINE)
        assert found is not None, place
        indented = "\n".join(found[1] + line for line in lines.strip("\n").splitlines())
        text = text[: found.start()] + indented + text[found.end() :]
    numbers = {"BATCH": batch, "WORKERS": workers, "SIZE": size}
    numbers_or_all = numbers | {"RANK": "self.rank" if rank is None else rank}
    for name, number in numbers_or_all.items():
        text = re.sub(rf"\b{name}\b", str(number), text)
    return text


def submit_cell(
    client: Client, source: str, file: str, config: dict[str, Any], entrypoint: str = "PlacedTrial"
) -> Experiment:
    """Submit an experiment of a class or function that a cell defines.

    Args:
        client: The client that submits it.
        source: The source of the cell.
        file: The cell's file, as IPython names it: `<ipython-input-5-name>`.
        config: The configuration without the entrypoint.
        entrypoint: A class or function of the cell.
    """
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    capsule = capture_trial(client, entrypoint, source, file=file)
    return create(client, config | {"entrypoint": entrypoint}, capsule)
