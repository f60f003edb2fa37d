"""Launchers start the ranks of a script: `python -m det_jupyter.launch.NAME SCRIPT`.

    torch_distributed, deepspeed     start the ranks of this computer themselves, with torchrun's
                                     variables; with other options, by torchrun and deepspeed
    horovod, mpi                     by horovodrun and mpirun
    wrap_rank                        one rank, for launchers that are not ours

An entrypoint of an experiment that is `torch_distributed` or `deepspeed` without options is not
run at all: the agent does what it would do (det_jupyter/contract/values/entrypoints.py).

They import neither torch nor the rest of the training library (`trial` does, which is a rank), so
they start in a moment.
"""
