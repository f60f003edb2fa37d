"""The experiment configuration: its sections and defaults, and checks of what users write."""

from det_jupyter.config.cross_checks import find_missing_batch_size
from det_jupyter.config.dotted_changes import find_conflicts, nested, read_changes, try_changes
from det_jupyter.config.experiment_config import ExperimentConfig
from det_jupyter.config.merging import merge, merge_variables, origins, take_template
from det_jupyter.config.notices import notices
from det_jupyter.config.parsing import check_sanity, parse_config, parse_part
from det_jupyter.config.places import path_of_change
from det_jupyter.config.reference import FieldHelp, choices, describe, known_keys
from det_jupyter.config.storages import (
    unwritable_storage,
    with_default_storage,
    with_storage,
)
from det_jupyter.config.yaml_output import to_yaml
from det_jupyter.config.yaml_text import (
    Sources,
    YamlDocument,
    lines_of_paths,
    parse_yaml,
    read_yaml,
)
from det_jupyter.contract.schema.hyperparameters import sample_hparams
from det_jupyter.contract.schema.seeds import trial_seed
from det_jupyter.contract.values.lengths import Length, TrainingUnits

__all__ = [
    "ExperimentConfig",
    "FieldHelp",
    "Length",
    "Sources",
    "TrainingUnits",
    "YamlDocument",
    "check_sanity",
    "choices",
    "describe",
    "find_conflicts",
    "find_missing_batch_size",
    "known_keys",
    "lines_of_paths",
    "merge",
    "merge_variables",
    "nested",
    "notices",
    "origins",
    "parse_config",
    "parse_part",
    "parse_yaml",
    "path_of_change",
    "read_changes",
    "read_yaml",
    "sample_hparams",
    "take_template",
    "to_yaml",
    "trial_seed",
    "try_changes",
    "unwritable_storage",
    "with_default_storage",
    "with_storage",
]
