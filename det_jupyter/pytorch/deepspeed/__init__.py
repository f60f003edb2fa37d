"""Training engines of DeepSpeed by Determined's trial API.

It needs the package deepspeed, which the trial imports: `pip install 'det-jupyter[deepspeed]'`.
"""

from det_jupyter.pytorch.deepspeed.context import DeepSpeedTrialContext, overwrite_deepspeed_config
from det_jupyter.pytorch.deepspeed.init import init
from det_jupyter.pytorch.deepspeed.trial import DeepSpeedTrial
from det_jupyter.pytorch.training.trainer import Trainer

__all__ = [
    "DeepSpeedTrial",
    "DeepSpeedTrialContext",
    "Trainer",
    "init",
    "overwrite_deepspeed_config",
]
