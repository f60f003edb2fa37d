"""How several ranks train one model together."""

from det_jupyter.pytorch.parallel.replicas import DistributedModel, explain_backward
from det_jupyter.pytorch.parallel.sharding import (
    divided_along,
    explain_sharding_error,
    gathered,
    is_divided,
    is_partial,
    is_sharded,
    local_part,
)
from det_jupyter.pytorch.parallel.states import (
    gradients,
    load_model_state,
    load_optimizer_state,
    load_rank_state,
    model_state,
    optimizer_state,
    own_model_state,
    rank_state,
    rescaled_gradients,
    set_gradients,
)
from det_jupyter.pytorch.parallel.tuning import BucketTuner
from det_jupyter.pytorch.parallel.wrapping import (
    ParallelOptions,
    as_bytes,
    parallelize,
    share_buffers,
    unwrap,
)

__all__ = [
    "BucketTuner",
    "DistributedModel",
    "ParallelOptions",
    "as_bytes",
    "divided_along",
    "explain_backward",
    "explain_sharding_error",
    "gathered",
    "gradients",
    "is_divided",
    "is_partial",
    "is_sharded",
    "load_model_state",
    "load_optimizer_state",
    "load_rank_state",
    "local_part",
    "model_state",
    "optimizer_state",
    "own_model_state",
    "parallelize",
    "rank_state",
    "rescaled_gradients",
    "set_gradients",
    "share_buffers",
    "unwrap",
]
