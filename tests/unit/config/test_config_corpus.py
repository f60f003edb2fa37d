"""Files of the shapes that Determined's users have: each is read, or its mistakes make sense.

A case is a file and all that is said of it: `note PATH` for what is ignored, else the problems.
"""

from __future__ import annotations

import pytest

from det_jupyter.config import notices, parse_config, read_yaml
from det_jupyter.config.yaml_text import with_lines
from det_jupyter.errors import ConfigError
from det_jupyter.searcher.methods import SECTIONS
from tests.problems import said

NAMES = ", ".join(SECTIONS)
SINGLE = "searcher: {name: single, metric: loss, max_length: {epochs: 6}}"
LENGTH = (
    'expected exactly one of "batches", "records" or "epochs" with a whole number that is not '
    "negative, such as {epochs: 6}"
)
EXPORTED = (
    "bind_mounts: []\ncheckpoint_policy: best\ndata: {}\ndebug: false\ndescription: null\n"
    "environment: {add_capabilities: [], environment_variables: {cpu: [], cuda: [], rocm: []}, "
    "image: {cpu: a, cuda: b}, pod_spec: null, ports: {}, proxy_ports: [], registry_auth: null}\n"
    "hyperparameters: {global_batch_size: {type: const, val: 64}}\nintegrations: null\nlabels: []"
    "\n"
    "log_policies: [{name: ECC Error, pattern: .*ECC.*, action: null}]\nmax_restarts: 5\n"
    "min_checkpoint_period: {batches: 0}\nname: n\noptimizations: {grad_updates_size_file: null, "
    "mixed_precision: O0, tensor_fusion_cycle_time: 1, tensor_fusion_threshold: 64}\npbs: {}\n"
    "preemption_timeout: null\nprofiling: {enabled: false, end_after_batch: null}\n"
    "project: Uncategorized\nrecords_per_epoch: 0\nresources: {devices: [], is_single_node: null, "
    "max_slots: null, native_parallel: false, priority: null, shm_size: null, weight: 1}\n"
    "retention_policy: null\nslurm: {}\ntensorboard_storage: null\nworkspace: Uncategorized"
)
FILES = [
    # Read as they are.
    (f"description: a\nhyperparameters: {{global_batch_size: 64, lr: 1.0, drop: null}}\n{SINGLE}",
     []),
    (f"records_per_epoch: 60000\n{SINGLE}", []),
    ("hyperparameters: {lr: {type: log, minval: -5.0, maxval: -2.0, base: 10}}\nsearcher: {name: "
     "adaptive_asha, metric: loss, max_trials: 16, max_length: {batches: 937}, mode: aggressive, "
     "max_rungs: 4, stop_once: true, bracket_rungs: null}", []),
    ("searcher: {name: adaptive_asha, metric: loss, max_trials: 16, time_metric: batches, "
     "max_time: 1000}", ["note hyperparameters"]),
    ("hyperparameters: {act: {type: categorical, vals: [relu, null]}, n: {type: int, minval: 2, "
     "maxval: 8, count: null}}\nsearcher: {name: random, metric: e, max_trials: 4, max_length: 5}",
     []),
    ("hyperparameters: {lr: {type: double, minval: 0.1, maxval: 1, count: 3}}\n"
     "searcher: {name: grid, metric: e, max_length: {batches: 100}}", []),
    (f"hyperparameters: {{optimizer: {{lr: 0.1, momentum: null}}, type: null}}\n{SINGLE}", []),
    (f"hyperparameters: {{a: {{type: const, val: null}}, bn: False, lr: .03, x: ''}}\n{SINGLE}",
     []),
    ("searcher: {name: single, metric: e, smaller_is_better: no, max_length: {batches: 1e3}}", []),
    (f"environment:\nreproducibility:\nscheduling_unit: 1e2\n{SINGLE}", []),
    ("common: &c {metric: e}\nsearcher: {<<: *c, name: single, max_length: 5}",
     ["line 2: common: unknown key; remove it"]),
    (f"checkpoint_storage: {{save_trial_latest: 5}}\n{SINGLE}", []),
    # Read, with what is ignored.
    (f"bind_mounts: [{{host_path: /tmp, container_path: /data}}]\nresources: {{shm_size: 4GiB"
     f"}}\n{SINGLE}", ["note bind_mounts", "note resources.shm_size"]),
    (f"environment: {{image: {{cpu: a, gpu: b}}, environment_variables: [NCCL_DEBUG=A, HF_TOKEN]"
     f"}}\n{SINGLE}", ["note environment.image"]),
    (f"environment: {{environment_variables: {{cpu: [A=1], gpu: [A=2], rocm: [A=3]}}}}\n{SINGLE}",
     ["note environment.environment_variables.rocm"]),
    (f"resources: {{slots: 1, devices: [/dev/a:/dev/b]}}\n{SINGLE}",
     ["note resources.devices", "note resources.slots"]),
    (f"workspace: research\n{SINGLE}", ["note workspace"]),
    (f"project: p\ndebug: true\n{SINGLE}", ["note debug", "note project"]),
    (f"slurm: {{sbatch_args: [--time=10], slots_per_node: 4}}\n{SINGLE}", ["note slurm"]),
    (f"environment: {{pod_spec: {{spec: {{containers: [{{name: c, volumes: null}}]}}}}, "
     f"proxy_ports: [{{proxy_port: 8265, default_service_id: null}}]}}\n{SINGLE}",
     ["note environment.pod_spec", "note environment.proxy_ports"]),
    (f"{EXPORTED}\n{SINGLE}", ["note environment.image", "note log_policies[0]",
     "note project", "note workspace"]),
    ("checkpoint_storage: {type: shared_fs, host_path: /tmp, storage_path: cp, container_path: "
     f"null, checkpoint_path: null, propagation: rprivate}}\n{SINGLE}",
     ["note checkpoint_storage.propagation"]),
    # Lengths.
    ("searcher: {name: single, metric: e}",
     ["line 2: searcher.max_length: missing; say how long to train, such as {epochs: 6} "
      "(searcher.name: single)"]),
    ("searcher: {name: single, metric: e, max_length: 5 epochs}",
     [f"line 2: searcher.max_length: got '5 epochs', {LENGTH}"]),
    ("searcher: {name: single, metric: e, max_length: {epoch: 5}}",
     [f"line 2: searcher.max_length: got {{'epoch': 5}}, {LENGTH}"]),
    ("searcher: {name: single, metric: e, max_length: {epochs: 0}}",
     ["line 2: searcher.max_length: got {'epochs': 0}, expected more than 0"]),
    (f"min_validation_period: epoch\n{SINGLE}",
     [f"line 2: min_validation_period: got 'epoch', {LENGTH}"]),
    (f"max_length: {{epochs: 5}}\n{SINGLE.replace(', max_length: {epochs: 6}', '')}",
     ["line 2: max_length: unknown key; it belongs below searcher: indent it"]),
    # Searchers.
    ("searcher:", ["line 2: searcher: missing; for one trial: {name: single, metric: ..., "
                   "max_length: {epochs: 1}}"]),
    ("searcher: {name: Random, metric: e, max_length: 5, max_trials: 5}",
     [f"line 2: searcher.name: got 'Random', expected one of {NAMES}"
      "; did you mean random?"]),
    ("searcher: {name: random, metric: e, max_length: 5}",
     ["line 2: searcher.max_trials: missing; give the number of trials "
      "(searcher.name: random)"]),
    ("searcher: {name: single, metric: e, max_length: 5, mode: standard}",
     ["line 2: searcher.mode: single does not have it; adaptive_asha has"]),
    ("searcher: {name: async_halving, num_rungs: 5, max_trials: 9, metric: e, max_length: 16}",
     ["line 2: searcher.num_rungs: got 5, expected at most 3: with a length of 16 and divisor 4, "
      "more rungs would not differ"]),
    ("searcher: {name: adaptive_asha, max_trials: 20, metric: e, time_metric: epochs}",
     ["line 2: searcher.max_time: missing; say where searcher.time_metric ('epochs') ends"]),
    ("searcher: {name: pbt, metric: e, population_size: 10, num_rounds: 4, length_per_round: "
     "{epochs: 2}, replace_function: {truncate_fraction: 0.2}}",
     ["line 2: searcher.name: pbt no longer exists; write searcher: {name: adaptive_asha, "
      "metric: e, max_trials: 10, max_length: {epochs: 8}}"]),
    ("batches_per_step: 50\nmin_validation_period: 5\nmin_checkpoint_period: null\n"
     "searcher: {name: single, metric: e, max_steps: 10}",
     ["note batches_per_step", "note min_validation_period", "note searcher.max_steps"]),
    # Hyperparameters.
    (f"hyperparameters: {{n: None}}\n{SINGLE}", ["note hyperparameters.n"]),
    (f"hyperparameters: {{lr: {{type: uniform, min: 0, max: 1}}}}\n{SINGLE}",
     ["line 2: hyperparameters.lr.type: got 'uniform', expected double"]),
    (f"hyperparameters: {{lr: {{type: double, min: 0, max: 1}}}}\n{SINGLE}",
     ["line 2: hyperparameters.lr.max: unknown key; did you mean maxval?",
      "line 2: hyperparameters.lr.min: unknown key; did you mean minval?"]),
    (f"hyperparameters: {{model: {{type: resnet50}}}}\n{SINGLE}",
     ["line 2: hyperparameters.model.type: got 'resnet50', expected one of const, int, double, "
      "log, categorical; a value of yours needs another key than type"]),
    (f"hyperparameters: {{lr: {{{{ lr }}}}}}\n{SINGLE}",
     ["line 2: hyperparameters.lr: expected a name as key, got a mapping; no template fills {{ }} "
      "in here"]),
    (f"hyperparameters: [lr, 0.1]\n{SINGLE}",
     ["line 2: hyperparameters: got ['lr', 0.1], expected a mapping (`key: value` lines)"]),
    (f"hyperparameters: {{global_batch_size: 3}}\nresources: {{slots_per_trial: 4}}\n{SINGLE}",
     ["line 2: hyperparameters.global_batch_size: got 3, expected at least "
      "resources.slots_per_trial (4)"]),
    # Everything else.
    (f"bind_mounts:\n- host_path: # of the data\n  container_path: /data\n{SINGLE}",
     ["note bind_mounts"]),
    (f"checkpoint_storage: {{type: hdfs, hdfs_url: a}}\n{SINGLE}",
     ["line 2: checkpoint_storage.type: got 'hdfs', which this version cannot write to; submit it "
      "with --checkpoint-storage FOLDER, start the master with "
      "DET_JUPYTER_CHECKPOINT_STORAGE=FOLDER, or write {type: directory, container_path: "
      "FOLDER}"]),
    (f"hyperparameter: {{lr: 1}}\nresource: {{slots_per_trial: 2}}\n{SINGLE}",
     ["line 2: hyperparameter: unknown key; did you mean hyperparameters?",
      "line 3: resource: unknown key; did you mean resources?"]),
    (f'max_restarts: "5"\nname: 2024\nlabels: [1.0]\n{SINGLE}',
     ["line 2: max_restarts: got '5', expected a number; write 5",
      'line 3: name: got 2024, expected text; write "2024"',
      'line 4: labels[0]: got 1.0, expected text; write "1.0"']),
    (f"environment: {{environment_variables: {{A: 1}}}}\n{SINGLE}",
     ["line 2: environment.environment_variables: got {'A': 1}, expected a list of NAME=value, or "
      "lists by cpu, cuda and rocm, not A"]),
    (f"log_policies: [{{pattern: x, action: cancel_retry}}]\n{SINGLE}",
     ["line 2: log_policies[0].action: got 'cancel_retry', expected cancel_retries or "
      "exclude_node"]),
    ("searcher:\n\tname: single\n\tmetric: e\n\tmax_length: 5",
     ["line 3: this is not YAML: indent with spaces, not tabs, here and in 2 more"]),
    (f"description: train: again\n{SINGLE}",
     ["line 2: description: this is not YAML: a second `key: ` in the line, or one indented more "
      "than the line before"]),
    (f"{SINGLE}\n---\nmax_restarts: 3",
     ["line 3: a second document begins here; expected one"]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "said"), FILES)
def test_a_file_is_read_or_its_mistakes_are_told(text: str, said: list[str]) -> None:
    assert said_of(f"entrypoint: T\n{text}\n") == said


def said_of(text: str) -> list[str]:
    reading = read_yaml(text)
    problems = list(reading.problems)
    try:
        parse_config(reading.document, default_seed=1)
    except ConfigError as error:
        problems += error.problems
    if problems:
        return said(with_lines(problems, reading.lines))
    return [f"note {notice.partition(':')[0]}" for notice in notices(reading.document)]
