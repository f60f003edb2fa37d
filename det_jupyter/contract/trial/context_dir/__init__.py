"""The context directory: a folder that travels to the ranks, which then work in a copy of it.

plan_context   what would travel, and what is wrong with it; reads no contents
pack_context   one tar file, a blob; the same files make the same blob
unpack_context the copy
context_files  its text, for people
"""

from det_jupyter.contract.trial.context_dir.archive import (
    context_files,
    pack_context,
    unpack_context,
)
from det_jupyter.contract.trial.context_dir.context_plan import ContextPlan, plan_context

__all__ = ["ContextPlan", "context_files", "pack_context", "plan_context", "unpack_context"]
