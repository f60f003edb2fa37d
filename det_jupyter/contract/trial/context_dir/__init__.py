"""The context directory: a folder that is sent with an experiment; each run works in a copy.

plan_context     find the files to send, and the problems with them; reads no contents
pack_context     store them as one tar file, a blob; equal files give an equal blob
unpack_context   make the copy
context_files    return its text files
"""

from det_jupyter.contract.trial.context_dir.archive import (
    context_files,
    pack_context,
    unpack_context,
)
from det_jupyter.contract.trial.context_dir.context_plan import ContextPlan, plan_context

__all__ = ["ContextPlan", "context_files", "pack_context", "plan_context", "unpack_context"]
