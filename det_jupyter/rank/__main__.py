"""The det-worker kernel: the rank that DET_RANK_SPEC describes, or an ordinary IPython kernel.

    python -m det_jupyter.rank -f CONNECTION_FILE

The agent starts a rank this way if it cannot be forked. Without DET_RANK_SPEC it is a kernel to
work in. Its kernel spec is in `share/det_jupyter`, where Jupyter does not look by itself, so that
front ends do not offer it for notebooks; `JUPYTER_PATH=PREFIX/share/det_jupyter` shows it.
"""

from __future__ import annotations

import os
from pathlib import Path

from det_jupyter.contract.messages import RankSpec
from det_jupyter.rank.process import prepare_process

SPEC_VARIABLE = "DET_RANK_SPEC"


def main() -> None:
    """Run the rank or the kernel."""
    # Processes that user code starts must not inherit it.
    spec_file = os.environ.pop(SPEC_VARIABLE, None)
    if spec_file is None:
        from ipykernel.kernelapp import IPKernelApp

        IPKernelApp.launch_instance()
        return
    spec = RankSpec.model_validate_json(Path(spec_file).read_text(encoding="utf-8"))
    prepare_process(spec, os.getppid())
    # Only now, so that errors of torch's import are in the rank's output.
    from det_jupyter.rank.rank import run_rank

    run_rank(spec)


if __name__ == "__main__":
    main()
