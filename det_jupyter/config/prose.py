"""The prose of the reference of all keys (documents.py)."""

from __future__ import annotations

INTRODUCTION = """\
# Configuration

An experiment is described in YAML. Two keys are required, everything else has a default:

```yaml
entrypoint: DigitsTrial
searcher: {name: single, metric: accuracy, smaller_is_better: false, max_length: {epochs: 6}}
```

All problems of a configuration, its text and its template are reported at once, each with its
line, its path, what was given and what is needed. A null counts as not given, but for a
hyperparameter. Names are those of Determined AI, and defaults but for [a few](#other-defaults);
files written for it are read, and what has no effect here is named in a notice.

    python -m det_jupyter.config check FILE.yaml [--template FILE.yaml]

prints `ok` and the effective configuration, with who gave each value, or the problems (exit
status 1). A file may name its template: `template: team` is `team.yaml` beside it.

[configuration.schema.json](configuration.schema.json) is the same for editors. This page and the
schema are made from the classes that check configurations: `python -m det_jupyter.config
reference` and `... schema` print them.
"""
ENTRYPOINTS = """\
## entrypoint

| written | what it is | runs once per |
|---|---|---|
| `DigitsTrial`, `train` | class or function of the notebook | slot |
| `model_def:Trial`, `pkg.models:Outer.Trial` | class or function of a module | slot |
| `python3 -m det_jupyter.launch.torch_distributed train.py` | script under a launcher | slot |
| `python3 train.py --epochs 3`, `python3 -m pkg.train` | script or module | computer |
| `./train.sh \\| tee log`, `mpirun -np 2 ./fit` | another command, run by `sh -c` | computer |
| `[python3, train.py, --lr, "0.1"]` | a command as a list: no shell reads it | as the same text |

The module is one of the context directory, or an installed one; the launcher may be `deepspeed`
too. `determined.launch.NAME` means `det_jupyter.launch.NAME`. A configuration's entrypoint has the
place of its template's, lists too; `entrypoint: null` leaves it to the template.
"""
OLDER = """\
## Older files

A file with `max_steps`, `target_trial_steps` or `batches_per_step` counts in steps, of
`batches_per_step` batches or 100: lengths and periods are read as batches (`min_validation_period:
5` is `{batches: 500}`), and each gets a notice. `adaptive_simple` is read as `adaptive_asha`, and
`resources.slots` as `slots_per_trial`. Searchers that are gone (`adaptive`, `sync_halving`, `pbt`,
`custom`) are refused with the section to write instead.

Storage `s3`, `gcs`, `azure` and `hdfs` cannot be written to here. `--checkpoint-storage FOLDER`
sends the checkpoints of one experiment to a folder; `DET_JUPYTER_CHECKPOINT_STORAGE=FOLDER` in the
environment that the master starts in does so for every experiment that names such a storage.
"""
LENGTHS = """\
## Lengths

`{batches: 500}`, `{records: 50000}` or `{epochs: 6}`: exactly one unit with a whole number. A bare
number counts batches. Records need `hyperparameters.global_batch_size`, and so do epochs if
`records_per_epoch` is given; without it an epoch is one pass over the training data.
"""
HYPERPARAMETERS = """\
## hyperparameters

| form | what a trial gets |
|---|---|
| `lr: 0.05`, or any value without `type` | that value |
| `lr: {type: const, val: 0.05}` | the value, which may be a list or mapping |
| `depth: {type: int, minval: 2, maxval: 8}` | a whole number, both ends included |
| `drop: {type: double, minval: 0, maxval: 0.5}` | a number |
| `lr: {type: log, base: 10, minval: -4, maxval: -1}` | a number from 10^-4 to 10^-1 |
| `act: {type: categorical, vals: [relu, gelu]}` | one of the values |
| `optimizer: {lr: ..., momentum: ...}` | hyperparameters nested to any depth |

`count` says into how many values searcher `grid` divides an int, double or log. A null is the
constant null. The same seed draws the same samples on every computer.
"""
YAML = """\
## YAML

Where versions of YAML differ, the field decides: `smaller_is_better: no` is false,
`description: no` is text. Where nothing decides, as in `hyperparameters`, `yes`, `no`, `on`,
`off` and `010` are refused with the line and with what to write. `None` is text in every version
of YAML, as it was in Determined; a notice says so, and `null` is no value. `1e-3` is a number,
`1:30` and `2024-01-31` are text, keys are always text. A key that is given twice, a tab as
indentation and an anchor inside its own value are refused. What is not YAML hides nothing else:
the smallest entry with a mistake is left out, and the rest is looked at.
"""
HALVING = """\
`max_length` is required, but for ASHA with a `time_metric`, and for commands with searcher single,
random or grid: these train as long as they like; `searcher.operations` gives them 1 batch. ASHA
measures training by `max_length`, or by a metric that validations report: `time_metric` up to
`max_time`.
With `max_length`, a trial that reaches a rung rests, without slots, until it is among the best
there; with `stop_once` or `time_metric` it goes on at once or is stopped for good.
"""
