"""transformers' Trainer averages a loss over tokens, whichever ranks and windows they are in."""

from __future__ import annotations

import warnings
from importlib.util import find_spec
from typing import Any

import pytest

from det_jupyter.core import DistributedContext
from tests.integration.parallel_ranks import RankRunner

pytestmark = pytest.mark.skipif(
    find_spec("transformers") is None, reason="could not import 'transformers'"
)


def trained(rank: DistributedContext, folder: str, batch: int, window: int) -> dict[str, Any]:
    """Train texts of 1 to 30 tokens, `batch` of them per rank and batch; return parameters."""
    import torch

    warnings.simplefilter("ignore")  # of the libraries
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    generator = torch.Generator().manual_seed(0)
    texts = torch.randint(0, 16, (48, 30), generator=generator)
    lengths = torch.randint(2, 31, (48,), generator=generator)  # the first is not predicted
    labels = texts.masked_fill(torch.arange(30) >= lengths[:, None], -100)
    rows = zip(texts, labels, strict=True)
    data = [{"input_ids": text, "labels": label} for text, label in rows]
    torch.manual_seed(0)
    config = GPT2Config(
        n_layer=1, n_head=1, n_embd=8, vocab_size=16, n_positions=30, bos_token_id=0,
        eos_token_id=0, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    model = GPT2LMHeadModel(config).double()
    arguments = TrainingArguments(
        output_dir=folder, use_cpu=True, max_steps=6, per_device_train_batch_size=batch,
        gradient_accumulation_steps=window, learning_rate=0.5, optim="sgd", max_grad_norm=0.0,
        lr_scheduler_type="constant", report_to=[], save_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    Trainer(model, arguments, train_dataset=data).train()
    return {name: tensor.detach().numpy() for name, tensor in model.named_parameters()}


@pytest.mark.long  # a property of that library
def test_the_trainer_of_transformers_averages_over_the_tokens_of_all_ranks_and_windows(
    run: RankRunner, tmp_path: Any
) -> None:
    (one,) = run(trained, 1, str(tmp_path), 8, 1)
    for ranks, batch, window in ((2, 4, 1), (2, 2, 2)):
        for other in run(trained, ranks, str(tmp_path), batch, window):
            for name, values in one.items():
                assert abs(values - other[name]).max() < 1e-10, (name, ranks, window)
