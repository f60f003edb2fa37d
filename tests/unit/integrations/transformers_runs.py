"""Trains a small transformer with a Trainer, whose import takes seconds and sets variables."""

from __future__ import annotations

from functools import wraps
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedTokenizerFast,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)
from transformers.trainer_callback import PrinterCallback

from det_jupyter import core
from det_jupyter.integrations.training_arguments import check_arguments
from det_jupyter.integrations.transformers import DetCallback, training_arguments

__all__ = [
    "CONFIG",
    "DetCallback",
    "GPT2LMHeadModel",
    "Trainer",
    "TrainerCallback",
    "TrainingArguments",
    "check_arguments",
    "torch",
    "training_arguments",
]

STEPS_PER_EPOCH, NUM_STEPS = 5, 15
CONFIG = GPT2Config(n_layer=1, n_head=1, n_embd=8, vocab_size=16, n_positions=8)


def data(num: int) -> list[dict[str, Any]]:
    tokens = torch.randint(0, 16, (num, 8), generator=torch.Generator().manual_seed(1))
    return [{"input_ids": each, "labels": each} for each in tokens]


class Plain(torch.nn.Module):
    """A model that is not of transformers."""

    def __init__(self) -> None:
        super().__init__()
        self.out = torch.nn.Linear(8, 1)

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> Any:
        found = self.out(input_ids.float())
        return {"loss": found.square().mean(), "logits": found}


def tokenizer() -> Any:
    vocabulary = WordLevel({"a": 0, "b": 1}, unk_token="a")
    made = Tokenizer(vocabulary)
    made.pre_tokenizer = Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=made, pad_token="a")


def trainer(
    context: core.Context,
    folder: Path,
    callbacks: list[Any] | None = None,
    model: Any = None,
    processing_class: Any = None,
    eval_dataset: Any = None,
    **arguments: Any,
) -> Any:
    """Return a Trainer of 3 epochs of 5 steps, and its DetCallback."""
    set_seed(5)
    usual = {
        "max_steps": NUM_STEPS,
        "logging_steps": 2,
        "eval_strategy": "epoch",
        "save_strategy": "epoch",
        "per_device_train_batch_size": 4,
        "learning_rate": 0.01,
        "use_cpu": True,
        "disable_tqdm": True,
        "output_dir": str(folder),
    }
    with context:
        callbacks = [DetCallback()] if callbacks is None else callbacks
        made = Trainer(
            GPT2LMHeadModel(CONFIG) if model is None else model,
            TrainingArguments(**{**usual, **arguments}),
            train_dataset=data(4 * STEPS_PER_EPOCH),
            eval_dataset=eval_dataset or data(4),
            callbacks=callbacks,
            processing_class=processing_class,
        )
    made.remove_callback(PrinterCallback)
    return made


def train(
    context: core.Context, folder: Path, callbacks: list[Any] | None = None, **arguments: Any
) -> Any:
    """Train as users do, and return the Trainer."""
    made = trainer(context, folder, callbacks, **arguments)
    given = made.callback_handler.callbacks
    callback = next((each for each in given if isinstance(each, DetCallback)), None)
    with context:
        made.train(resume_from_checkpoint=callback and callback.resume_from_checkpoint)
    return made


def finetune(core_context: core.Context, hparams: dict[str, Any]) -> Any:
    """An entrypoint, as users write it."""
    width = hparams.pop("width")
    return width, training_arguments(hparams, max_steps=3)


@wraps(finetune)
def changed(core_context: core.Context, hparams: dict[str, Any]) -> Any:
    return finetune(core_context, {"width": 1})


def with_its_own_helper(core_context: core.Context, hparams: dict[str, Any]) -> Any:
    training_arguments: Any = dict
    return training_arguments(hparams)


def weights(made: Any) -> Any:
    return torch.cat([each.detach().flatten() for each in made.model.parameters()])


def history(made: Any) -> list[dict[str, Any]]:
    """Return the Trainer's log without times, and without the summary at the end."""
    times = ("runtime", "per_second")
    return [
        {name: value for name, value in each.items() if not name.endswith(times)}
        for each in made.state.log_history
        if "train_loss" not in each
    ]
