"""The specs of ranks for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from det_jupyter.config import parse_config
from det_jupyter.contract.messages import (
    Capsule,
    GangPlan,
    RankPlace,
    RankSpec,
    SlotView,
)
from det_jupyter.contract.run.control_page import create_page
from det_jupyter.contract.values.lengths import Length

SEARCHER = {"name": "single", "metric": "m", "max_length": {"batches": 9}}
CONFIG = parse_config({"entrypoint": "Trial", "searcher": SEARCHER}, default_seed=1).to_document()


def make_spec(
    folder: Path,
    entrypoint: str = "Trial",
    *,
    rank: int = 0,
    num_ranks: int = 1,
    place: dict[str, Any] | None = None,
    **changes: Any,
) -> RankSpec:
    """Return the spec of a rank on CPU places; the run's folder has a control page."""
    plan = GangPlan(
        allocation_id="1.1.1",
        experiment_id=1,
        trial_id=1,
        run=1,
        python="python3",
        cwd=str(folder),
        slots=[SlotView(id=i, kind="cpu", index=i, name="CPU") for i in range(num_ranks)],
        config=CONFIG | {"entrypoint": entrypoint},
        hparams={},
        seed=1,
        capsule=Capsule(entrypoint="Trial", payload="a" * 64, sources=""),
        target=Length("batches", 9),
    ).model_copy(update=changes)
    if not (folder / "control").exists():
        create_page(folder / "control")
    own: dict[str, Any] = {
        "rank": rank,
        "world_size": num_ranks,
        "local_rank": rank,
        "local_world_size": num_ranks,
        "master_addr": "127.0.0.1",
        "master_port": 0,
    }
    return RankSpec(
        plan=plan,
        place=RankPlace(**own | (place or {})),
        run_dir=str(folder),
        data_dir=str(folder),
        socket_dir=str(folder),
        store=str(folder / "store"),
        secret="5e" * 32,
    )
