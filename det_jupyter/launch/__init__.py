"""Launchers start the ranks of a script: `python -m det_jupyter.launch.NAME SCRIPT`.

    torch_distributed, deepspeed     start the ranks of this computer themselves, with torchrun's
                                     variables; with other options, by torchrun and deepspeed
    horovod, mpi                     by horovodrun and mpirun
    wrap_rank                        one rank, for launchers that are not ours

If the entrypoint of an experiment is `torch_distributed` or `deepspeed` without options, the
launcher is not run: the agent starts the ranks itself (contract/values/entrypoints.py).

Launchers import neither torch nor the rest of the training library, so they start fast. `trial`
does, but that is a rank.
"""
