"""Trainers that a function calls without DetCallback: found where it is sure, and mended."""

from __future__ import annotations

import ast
import textwrap
from collections import UserList
from types import ModuleType

import pytest

from det_jupyter.contract.trial.plain_trainers import find_plain_trainer, with_callback

HF = """
def finetune(core_context, hparams):
    trainer = Trainer(
        model,
        arguments,  # of the run
        train_dataset=data,
    )
    trainer.train()
    return trainer.state
"""
HF_ADDED = """
def finetune(core_context, hparams):
    from det_jupyter.integrations.transformers import DetCallback

    det = DetCallback()
    trainer = Trainer(
        model,
        arguments,  # of the run
        train_dataset=data, callbacks=[det],
    )
    trainer.train(resume_from_checkpoint=det.resume_from_checkpoint)
    return trainer.state
"""
LIGHTNING = """
def finetune(hparams):
    import lightning as L
    t = L.Trainer(max_epochs=3, callbacks=[L.pytorch.callbacks.EarlyStopping("ü")])
    t.fit(Net(), data, ckpt_path=None)
"""
LIGHTNING_ADDED = """
def finetune(hparams):
    import lightning as L
    from det_jupyter.integrations.lightning import DetCallback

    det = DetCallback()
    t = L.Trainer(max_epochs=3, callbacks=[L.pytorch.callbacks.EarlyStopping("ü"), det])
    t.fit(Net(), data, ckpt_path=det.ckpt_path)
"""
KERAS = """
def finetune(hparams):
    det = 3
    net = keras.Sequential([keras.layers.Dense(1)])
    net.compile("adam", "mse")
    net.fit(x, y, epochs=det)
"""
KERAS_ADDED = """
def finetune(hparams):
    det = 3
    from det_jupyter.integrations.keras import DetCallback

    det_callback = DetCallback()
    net = keras.Sequential([keras.layers.Dense(1)])
    net.compile("adam", "mse")
    net.fit(x, y, epochs=det, callbacks=[det_callback])
"""


class Trainer:
    """Stands for the one of transformers."""


class OwnTrainer(Trainer):
    """One of the user's, which may have a callback of its own."""


Trainer.__module__ = "transformers.trainer"
NAMES = {
    "Trainer": Trainer,
    "OwnTrainer": OwnTrainer,
    "keras": ModuleType("keras"),
    "L": ModuleType("lightning"),
    "core": ModuleType("det_jupyter.core"),
    "mine": UserList(),
}


def found_in(source: str) -> str:
    (function,) = ast.parse(textwrap.dedent(source)).body
    assert isinstance(function, ast.FunctionDef)
    return find_plain_trainer(function, NAMES)


@pytest.mark.parametrize(
    ("name", "source", "added"),
    [
        ("transformers.Trainer", HF, HF_ADDED),
        ("lightning.Trainer", LIGHTNING, LIGHTNING_ADDED),
        ("keras.Sequential", KERAS, KERAS_ADDED),
    ],
)
def test_a_plain_trainer_is_found_and_gets_its_callback(
    name: str, source: str, added: str
) -> None:
    assert found_in(source) == name
    assert with_callback(f"import os\n{source}", "finetune", name) == f"import os\n{added}"
    assert found_in(added) == ""
    assert with_callback(added, "finetune", name) is None


@pytest.mark.parametrize(
    "body",
    [
        "t = Trainer(model, callbacks=[mine])\nt.train()",
        "t = Trainer(model, callbacks=all_of_them)\nt.train()",
        "t = Trainer(model, **options)\nt.train()",
        "t = Trainer(model)\nt.add_callback(mine)\nt.train()",
        "t = Trainer(model)\nt.callback_handler.callbacks.append(mine)\nt.train()",
        "t = Trainer(model)\nprepare(t)\nt.train()",
        "t = Trainer(model)\nt.evaluate()",
        "t = OwnTrainer(model)\nt.train()",
        "t = L.Trainer()\nt.callbacks = [mine]\nt.fit(net)",
        "t = Trainer(model)\nt.train()\ncore_context.train.report_metrics('a', 1, {})",
        "t = Trainer(model)\nt.train()\ncore.current().checkpoint.upload('a')",
        "Trainer = other\nt = Trainer(model)\nt.train()",
        "from mine import Trainer\nt = Trainer(model)\nt.train()",
        "t = make_trainer()\nt.train()",
        "net = keras.Sequential()\nnet.fit(x, callbacks=[mine])",
    ],
)
def test_what_may_have_a_callback_is_not_named(body: str) -> None:
    assert found_in("def f(core_context, hparams):\n" + textwrap.indent(body, "    ")) == ""


@pytest.mark.parametrize(
    "source",
    [
        HF.replace("trainer.train()", "trainer.train(None)"),
        HF.replace("        train_dataset=data,\n", "        (data),\n"),
        HF.replace("    trainer = Trainer(", "    a = 1; trainer = Trainer("),
        "finetune = 3",
    ],
)
def test_a_source_that_cannot_be_changed_safely_stays(source: str) -> None:
    assert with_callback(source, "finetune", "transformers.Trainer") is None


def test_lines_of_magics_stay() -> None:
    source = "%%time\n" + HF
    assert with_callback(source, "finetune", "transformers.Trainer") == "%%time\n" + HF_ADDED
