"""The det-worker kernel: the rank that DET_RANK_SPEC describes, or an ordinary IPython kernel.

    python -m det_jupyter.worker -f CONNECTION_FILE

A rank is started this way when it cannot be forked from the zygote. Started by a person, from the
launcher say, there is no rank to be, and the kernel is one to work in.
"""

from __future__ import annotations

import os
from pathlib import Path

from det_jupyter.wire import RankSpec
from det_jupyter.worker.process import prepare_process

SPEC_VARIABLE = "DET_RANK_SPEC"


def main() -> None:
    """Be what the environment says."""
    spec_file = os.environ.pop(SPEC_VARIABLE, None)  # not for the processes that user code starts
    if spec_file is None:
        from ipykernel.kernelapp import IPKernelApp

        IPKernelApp.launch_instance()
        return
    spec = RankSpec.model_validate_json(Path(spec_file).read_text(encoding="utf-8"))
    prepare_process(spec, os.getppid())
    # Only now: what goes wrong while torch is imported shall be in the rank's output.
    from det_jupyter.worker.rank import run_rank

    run_rank(spec)


if __name__ == "__main__":
    main()
