"""DeepSpeed: the state of an engine is a checkpoint of the trial, ZeRO's parts included.

    engine, _, _, _ = deepspeed.initialize(model=model, config=config)
    state = load_engine(engine) or {"epoch": 0}
    for epoch in range(state["epoch"], 8):
        ...                                             # engine.backward, engine.step
        save_engine(engine, {"epoch": epoch + 1})
        if context.preempt.should_preempt():
            break

The engine saves and loads itself. Beside it each rank stores the state of its random generators.
Gradients that are accumulated over several batches are in no checkpoint of DeepSpeed: within such
a window `should_preempt()` is false, and `save_engine` is an error.
Metrics, pauses and searches are those of the Core API.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from det_jupyter import core
from det_jupyter.errors import DetError
from det_jupyter.integrations import require
from det_jupyter.integrations.common import (
    current_context,
    generators_file,
    origin_of,
    restore_generators,
    save_generators,
)
from det_jupyter.integrations.loading import DEEPSPEED_TAG

require("deepspeed")

from deepspeed import DeepSpeedEngine

_OURS = "det_jupyter"  # our key in the client state, which DeepSpeed mixes with its own


def save_engine(
    engine: DeepSpeedEngine,
    client_state: Mapping[str, Any] | None = None,
    context: core.Context | None = None,
) -> str:
    """Store the engine as a checkpoint of the trial, and return its uuid. All ranks must call it.

    Its `steps_completed` are the engine's `global_steps`.

    Args:
        engine: The engine that `deepspeed.initialize` has returned.
        client_state: A dict that `load_engine` returns in a run that continues. DeepSpeed stores
            only that of rank 0.
        context: The Core API's; by default the current one.

    Raises:
        DetError: There is no context, or gradients were accumulated that no step has used yet.
    """
    context = current_context(context, "save_engine")
    if _is_within_window(engine):
        raise DetError(
            "save_engine: gradients are accumulated that no step has used yet, and DeepSpeed's "
            "checkpoints have none; call it after the engine.step() that ends a window: where "
            "engine.micro_steps % engine.gradient_accumulation_steps() == 0"
        )
    metadata = {"steps_completed": engine.global_steps}
    shard = context.distributed.size > 1
    origin = origin_of(context, "deepspeed")
    opened = context.checkpoint.store_path(metadata, shard=shard, origin=origin)
    with opened as (folder, uuid):
        engine.save_checkpoint(
            str(folder), tag=DEEPSPEED_TAG, client_state={_OURS: dict(client_state or {})}
        )
        save_generators(generators_file(folder, context.distributed.rank))
    return uuid


def load_engine(
    engine: DeepSpeedEngine, context: core.Context | None = None
) -> dict[str, Any] | None:
    """Restore the engine from the trial's checkpoint. All ranks must call it.

    Args:
        engine: The engine that `deepspeed.initialize` has returned, with as many ranks as when it
            was saved.
        context: The Core API's; by default the current one.

    Returns:
        The `client_state`; None if the trial has no checkpoint yet.

    Raises:
        DetError: There is no context.
    """
    context = current_context(context, "load_engine")
    context.preempt.hold_while(lambda: _is_within_window(engine))
    info = context.info
    if info is None or info.latest_checkpoint is None:
        return None
    with context.checkpoint.restore_path(info.latest_checkpoint) as folder:
        _, client_state = engine.load_checkpoint(str(folder), tag=DEEPSPEED_TAG)
        restore_generators(generators_file(folder, context.distributed.rank))
    return dict(client_state[_OURS])


def _is_within_window(engine: DeepSpeedEngine) -> bool:
    """Return whether the engine has gradients that no step has used."""
    chosen: bool | None = engine._is_gradient_accumulation_boundary
    if chosen is not None:  # set by set_gradient_accumulation_boundary
        return not chosen
    if getattr(engine, "managed_gradient_accumulation", lambda: True)():
        return bool(engine.micro_steps % engine.gradient_accumulation_steps())
    return bool(engine._unmanaged_backward_count > 0)  # since the last step
