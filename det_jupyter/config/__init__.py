"""The experiment configuration: what may be written, its defaults, and what is wrong with it."""

from det_jupyter.config.experiment import ExperimentConfig, parse_config
from det_jupyter.config.hyperparameters import sample_hparams
from det_jupyter.config.lengths import Length, TrainingUnits
from det_jupyter.config.seeds import trial_seed
from det_jupyter.config.text import lines_of_paths, parse_yaml

__all__ = [
    "ExperimentConfig",
    "Length",
    "TrainingUnits",
    "lines_of_paths",
    "parse_config",
    "parse_yaml",
    "sample_hparams",
    "trial_seed",
]
