"""Files in the many styles that Determined's users wrote, of versions 0.12 to 0.38.

Each is a name, the file, and what is said of it: the paths of the notices.
"""

from __future__ import annotations

FILES: dict[str, tuple[str, list[str]]] = {
    "0.12, steps of 100 batches, a trial in a module": ("""
description: digits_const
hyperparameters:
  global_batch_size: 64
  learning_rate: 1.0
  dropout1: 0.25
searcher:
  name: single
  metric: validation_loss
  max_steps: 9
  smaller_is_better: true
min_validation_period: 1
entrypoint: model_def:DigitsTrial
""", ["min_validation_period", "searcher.max_steps"]),
    "0.12, steps of its own length, periods, a bucket": ("""
description: flowers, resumed often
data:
  bucket: flowers-eu
  secrets: {token: abc}
batches_per_step: 250
min_validation_period: 4
min_checkpoint_period: 8
max_restarts: 2
hyperparameters:
  global_batch_size: {type: const, val: 128}
  optimizer: {type: categorical, vals: [adam, sgd]}
searcher:
  name: random
  metric: top1
  smaller_is_better: false
  max_trials: 12
  max_steps: 40
resources:
  slots_per_trial: 2
  native_parallel: false
entrypoint: flowers.trial:FlowerTrial
""", ["batches_per_step", "min_checkpoint_period", "min_validation_period",
      "searcher.max_steps"]),
    "0.12, adaptive_simple in steps": ("""
description: digits_adaptive_search
hyperparameters:
  global_batch_size: 64
  learning_rate: {type: double, minval: .0001, maxval: 1.0}
  n_filters1: {type: int, minval: 8, maxval: 64}
searcher:
  name: adaptive_simple
  metric: validation_loss
  smaller_is_better: true
  max_steps: 16
  max_trials: 32
entrypoint: model_def:DigitsTrial
""", ["searcher.max_steps", "searcher.name"]),
    "0.12, a notebook of the native API": ("""
description: native
internal: {native: {command: [train.py, --mode, cluster]}}
searcher: {name: single, metric: val_loss, target_trial_steps: 3, smaller_is_better: true}
hyperparameters: {global_batch_size: 32}
entrypoint: fit:Fit
""", ["internal", "searcher.target_trial_steps"]),
    "0.13, batches, two images": ("""
description: cifar10_const
data: {url: "https://example.com/cifar-10.tar.gz"}
environment:
  image:
    cpu: "determinedai/environments:py-3.6.9-pytorch-1.4-cpu-abc"
    gpu: "determinedai/environments:cuda-10.0-pytorch-1.4-gpu-abc"
hyperparameters: {global_batch_size: 32, learning_rate: 1.0e-4, learning_rate_decay: 1.0e-6}
searcher:
  name: single
  metric: validation_accuracy
  smaller_is_better: false
  max_length: {batches: 5000}
scheduling_unit: 50
entrypoint: model_def:CIFARTrial
""", ["environment.image"]),
    "0.14, epochs by records": ("""
description: imagenet, 8 slots
records_per_epoch: 1281167
min_validation_period:
  epochs: 1
perform_initial_validation: True
checkpoint_policy: none
bind_mounts:
  - host_path: /data/imagenet
    container_path: /data
    read_only: true
resources:
  slots_per_trial: 8
  shm_size: 4294967296
  agent_label: v100
hyperparameters: {global_batch_size: 1024, workers: 8, arch: resnet50}
searcher:
  name: single
  metric: val_loss
  max_length:
    epochs: 90
optimizations:
  aggregation_frequency: 2
  mixed_precision: O1
entrypoint: trial:ImageNetTrial
""", ["bind_mounts", "resources.agent_label", "resources.shm_size"]),
    "0.15, asha without a mode": ("""
description: bert on glue
data: {task: MRPC, max_seq_length: 128}
hyperparameters:
  global_batch_size: 24
  learning_rate: {type: log, base: 10, minval: -6, maxval: -4}
  weight_decay: {type: categorical, vals: [0, 0.01, 0.1]}
searcher:
  name: adaptive_asha
  metric: f1
  smaller_is_better: no
  max_trials: 40
  max_length: {records: 24000}
  divisor: 3
  max_rungs: 4
  stop_once: false
entrypoint: model_def:GlueTrial
""", []),
    "0.15, halving": ("""
description: halving
hyperparameters:
  global_batch_size: 16
  lr: {type: double, minval: 0.001, maxval: 0.1, count: 4}
searcher:
  {name: async_halving, metric: loss, num_rungs: 3, max_trials: 9, max_length: {batches: 900}}
entrypoint: a.b.c:Model
""", []),
    "0.16, nested hyperparameters over a grid": ("""
name: grid of optimizers
labels: [grid, "2021"]
hyperparameters:
  global_batch_size: 64
  optimizer:
    lr: {type: log, base: 10, minval: -4.0, maxval: -1.0, count: 4}
    nesterov: {type: categorical, vals: [true, false]}
    schedule: null
searcher: {name: grid, metric: acc, smaller_is_better: false, max_length: {epochs: 2}}
entrypoint: model:Net
profiling: {enabled: true, begin_on_batch: 100, end_after_batch: 200}
""", []),
    "0.17, variables by kind of device, NCCL": ("""
name: variables
environment:
  force_pull_image: true
  image: myrepo/env:1.2
  registry_auth: {username: me, password: secret}
  environment_variables:
    cpu: [OMP_NUM_THREADS=4]
    gpu: [OMP_NUM_THREADS=1, NCCL_SOCKET_IFNAME=eth0, NCCL_DEBUG=INFO]
hyperparameters: {global_batch_size: 8}
searcher: {name: single, metric: loss, max_length: {batches: 100}}
entrypoint: model_def:Trial
""", ["environment.force_pull_image", "environment.image", "environment.registry_auth"]),
    "0.17.7, the first commands": ("""
name: a command
hyperparameters: {}
searcher: {name: single, metric: loss, max_length: {batches: 937}}
max_restarts: 0
entrypoint: python3 train.py --data-dir /tmp/data --no-cuda
""", []),
    "0.17.9, a length without a unit": ("""
name: core_api_stage_0
entrypoint: python3 0_start.py

# there are no hyperparameters yet
searcher:
   name: single
   metric: x
   max_length: 1

max_restarts: 0
""", []),
    "0.18, the Core API with a search": ("""
name: core_api_stage_3
entrypoint: python3 3_hpsearch.py
hyperparameters:
  increment_by: {type: int, minval: 1, maxval: 8}
searcher:
  name: adaptive_asha
  metric: x
  smaller_is_better: true
  max_trials: 10
  max_length: 100
max_restarts: 0
""", []),
    "0.18, the Core API with a launcher of its own": ("""
name: core_api_stage_4
entrypoint: python3 4_launcher.py
hyperparameters: {increment_by: {type: int, minval: 1, maxval: 8}}
searcher: {name: single, metric: x, max_length: 100}
resources: {slots_per_trial: 8}
max_restarts: 0
workspace: Tutorials
project: core
""", ["project", "workspace"]),
    "0.18, torch_distributed over a folded text": ("""
name: vision
entrypoint: >-
  python3 -m determined.launch.torch_distributed
  python3 train.py
  --epochs 3
  --lr 0.1
resources: {slots_per_trial: 4}
hyperparameters: {global_batch_size: 64}
searcher: {name: single, metric: loss, max_length: {epochs: 3}}
""", []),
    "0.18, deepspeed with a trial": ("""
name: gpt-neox
debug: false
environment:
  environment_variables:
    - NCCL_SOCKET_IFNAME=ens,eth,ib
    - TORCH_EXTENSIONS_DIR=/tmp/ext
    - HF_TOKEN
  image: {gpu: determinedai/environments:cuda-11.3-pytorch-1.10-deepspeed}
resources: {slots_per_trial: 16, shm_size: 64g}
hyperparameters:
  overwrite_deepspeed_args: {train_batch_size: 512, optimizer: {params: {lr: 6.0e-4}}}
searcher: {name: single, metric: lm_loss, max_length: {batches: 500}}
min_validation_period: {batches: 50}
entrypoint: python3 -m determined.launch.deepspeed --trial gpt2_trial:GPT2Trial
""", ["environment.image", "resources.shm_size"]),
    "0.19, horovod with a trial": ("""
name: horovod
entrypoint: python3 -m determined.launch.horovod --autohorovod --trial model_def:MNistTrial
optimizations:
  auto_tune_tensor_fusion: true
  tensor_fusion_threshold: 100
  tensor_fusion_cycle_time: 8
  gradient_compression: true
hyperparameters: {global_batch_size: 64}
searcher: {name: single, metric: accuracy, smaller_is_better: false, max_length: {epochs: 1}}
""", ["optimizations.tensor_fusion_cycle_time"]),
    "0.19, a command as a list": ("""
name: list
entrypoint:
  - python3
  - -m
  - determined.launch.torch_distributed
  - --
  - python3
  - run_glue.py
  - --learning_rate
  - "2e-5"
hyperparameters: {}
searcher: {name: single, metric: eval_loss, max_length: {batches: 300}}
resources: {slots_per_trial: 2, resource_pool: gpus}
""", []),
    "0.19, a shell script with pipes and quotes": ("""
name: shell
entrypoint: |
  set -e
  pip install -r requirements.txt && \\
  python3 prep.py --out "$HOME/d" | tee prep.log
  exec python3 train.py
hyperparameters: {}
searcher: {name: single, metric: loss, max_length: {batches: 1}}
""", []),
    "0.20, MPI by hand": ("""
name: mpi
entrypoint: mpirun --allow-run-as-root -np 4 -x PATH python3 -m solver.main
environment: {proxy_ports: [{proxy_port: 8265, proxy_tcp: true}], ports: {http: 80}}
hyperparameters: {}
searcher: {name: random, metric: residual, max_trials: 1, max_concurrent_trials: 1, max_length: 10}
slurm: {slots_per_node: 4, sbatch_args: ["--time=10:00:00", "-p gpu"]}
pbs: {pbsbatch_args: ["-l select=1"]}
""", ["environment.ports", "environment.proxy_ports", "pbs", "slurm"]),
    "0.21, Ray and a pod": ("""
name: ray
entrypoint: ./launcher.sh --port=6379 python3 tune.py
environment:
  add_capabilities: [IPC_LOCK]
  pod_spec:
    metadata: {labels: {team: a}}
    spec:
      tolerations: [{key: gpu, operator: Exists, effect: NoSchedule}]
      containers: [{name: determined-container, volumeMounts: [{name: d, mountPath: /d}]}]
      volumes: [{name: d, persistentVolumeClaim: {claimName: c}}]
hyperparameters: {}
searcher: {name: single, metric: reward, smaller_is_better: false, max_length: {batches: 10}}
""", ["environment.add_capabilities", "environment.pod_spec"]),
    "0.23, nulls that a template completes": ("""
name: partly
description: null
labels: null
entrypoint: model_def:Trial
environment: null
hyperparameters: {global_batch_size: 32, dropout: null}
reproducibility: {experiment_seed: 777}
searcher: {name: single, metric: loss, max_length: {epochs: 1}, source_trial_id: null}
checkpoint_storage:
  {type: shared_fs, host_path: /tmp/checkpoints, storage_path: null, save_trial_best: 2}
""", []),
    "0.25, a folder in the container": ("""
name: directory
checkpoint_storage: {type: directory, container_path: /determined_shared_fs}
entrypoint: python3 -m torch.distributed.run --standalone --nproc_per_node 2 train.py
hyperparameters: {}
searcher: {name: single, metric: loss, max_length: {batches: 1}}
""", []),
    "0.26.3, policies of logs": ("""
name: policies
log_policies:
  - pattern: .*uncorrectable ECC error encountered.*
    action: {type: exclude_node}
  - {pattern: ".*CUDA out of memory.*", action: {type: cancel_retries}}
integrations: {webhooks: {webhook_id: [1]}}
entrypoint: model_def:Trial
hyperparameters: {global_batch_size: 32}
searcher: {name: single, metric: loss, max_length: {epochs: 1}}
""", ["integrations"]),
    "0.31, a file that was exported": ("""
bind_mounts: []
checkpoint_policy: best
checkpoint_storage: {access_key: null, checkpoint_path: null, container_path: null,
  host_path: /tmp, propagation: rprivate,
  save_experiment_best: 0, save_trial_best: 1, save_trial_latest: 1,
  storage_path: determined-checkpoint, tensorboard_path: null, type: shared_fs}
data: {}
debug: false
description: null
entrypoint: python3 -m determined.launch.torch_distributed --trial model_def:MNistTrial
environment: {add_capabilities: [], drop_capabilities: [],
  environment_variables: {cpu: [], cuda: [], rocm: []}, force_pull_image: false,
  image: {cpu: a, cuda: b, rocm: c}, pod_spec: null,
  ports: {}, proxy_ports: [], registry_auth: null}
hyperparameters: {global_batch_size: {type: const, val: 64}}
integrations: null
labels: []
log_policies: []
max_restarts: 5
min_checkpoint_period: {batches: 0}
min_validation_period: {batches: 0}
name: exported
optimizations: {aggregation_frequency: 1, auto_tune_tensor_fusion: false,
  average_aggregated_gradients: true, average_training_metrics: true,
  grad_updates_size_file: null, gradient_compression: false,
  mixed_precision: O0, tensor_fusion_cycle_time: 1, tensor_fusion_threshold: 64}
pbs: {}
perform_initial_validation: false
preemption_timeout: null
profiling: {begin_on_batch: 0, enabled: false, end_after_batch: null, sync_timings: true}
project: Uncategorized
records_per_epoch: 0
reproducibility: {experiment_seed: 1700000000}
resources: {devices: [], is_single_node: null, max_slots: null, native_parallel: false,
  priority: null, resource_pool: default, shm_size: null, slots_per_trial: 1, weight: 1}
retention_policy: null
scheduling_unit: 100
searcher: {max_length: {batches: 937}, metric: validation_loss, name: single,
  smaller_is_better: true, source_checkpoint_uuid: null, source_trial_id: null}
slurm: {}
tensorboard_storage: null
workspace: Uncategorized
""", ["checkpoint_storage.propagation", "environment.image", "project", "workspace"]),
    "0.36, retention and a timeout": ("""
name: kept
retention_policy: {log_retention_days: 90}
preemption_timeout: 600
resources: {slots_per_trial: 0, priority: 50, weight: 2, max_slots: 4, is_single_node: true}
entrypoint: python3.10 -u train.py
hyperparameters: {}
searcher: {name: grid, metric: loss, max_concurrent_trials: 0, max_length: {batches: 5}}
""", ["hyperparameters", "retention_policy"]),
    "0.38, asha by time": ("""
name: adaptive by batches
entrypoint: python3 -m determined.launch.torch_distributed python3 train.py
hyperparameters: {lr: {type: log, base: 10, minval: -5, maxval: -1}}
searcher:
  name: adaptive_asha
  metric: validation_loss
  smaller_is_better: true
  max_trials: 16
  time_metric: batches
  max_time: 937
  mode: aggressive
resources: {slots_per_trial: 2, devices: ["/dev/infiniband/:/dev/infiniband/"]}
""", ["resources.devices"]),
    "0.38, a command without a length": ("""
name: core-api-whoami
entrypoint: ./whoami.py --verbose
searcher:
   name: single
   metric: x
max_restarts: 0
""", ["searcher.max_length"]),
    "0.38, asha by a metric of the script": ("""
name: tokens
entrypoint: python3 train.py
hyperparameters: {lr: {type: log, base: 10, minval: -5, maxval: -1}}
searcher: {name: adaptive_asha, metric: loss, max_trials: 8, time_metric: tokens, max_time: 9000}
min_validation_period: {batches: 100}
""", ["searcher.max_length"]),
    "a key of notebooks": ("""
description: slots
resources: {slots: 2}
entrypoint: model_def:Trial
hyperparameters: {global_batch_size: 32}
searcher: {name: single, metric: loss, max_length: {epochs: 1}}
""", ["resources.slots"]),
}  # fmt: skip
STORAGES = {
    "0.12, Hadoop": "{type: hdfs, hdfs_url: 'http://h:50070', hdfs_path: /c, save_trial_best: 3}",
    "0.12, Hadoop with a user": "{type: hdfs, hdfs_url: 'http://h', hdfs_path: /c, user: u, "
    "save_trial_best: 3}",
}
