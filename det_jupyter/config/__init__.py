"""The experiment configuration: what may be written, its defaults, and what is wrong with it."""

from det_jupyter.config.experiment import ExperimentConfig
from det_jupyter.config.hyperparameters import sample_hparams
from det_jupyter.config.lengths import Length, TrainingUnits
from det_jupyter.config.merging import merge, origins
from det_jupyter.config.notices import notices
from det_jupyter.config.parsing import check_sanity, parse_config
from det_jupyter.config.reference import FieldHelp, choices, describe, known_keys
from det_jupyter.config.seeds import trial_seed
from det_jupyter.config.text import lines_of_paths, parse_yaml
from det_jupyter.config.writing import to_yaml

__all__ = [
    "ExperimentConfig",
    "FieldHelp",
    "Length",
    "TrainingUnits",
    "check_sanity",
    "choices",
    "describe",
    "known_keys",
    "lines_of_paths",
    "merge",
    "notices",
    "origins",
    "parse_config",
    "parse_yaml",
    "sample_hparams",
    "to_yaml",
    "trial_seed",
]
