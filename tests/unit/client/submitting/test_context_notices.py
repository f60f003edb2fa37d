"""Notices about a context, for what its files would do elsewhere."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from det_jupyter.client.submitting.context_notices import find_unrun_hook
from det_jupyter.contract.trial.context_dir import (
    plan_context,
)
from det_jupyter.contract.values.entrypoints import Command, parse_entrypoint
from tests.unit.contract.trial.context_dir.folders import write


@pytest.mark.parametrize(
    ("entrypoint", "started"),
    [
        ("model_def:Trial", "-m det_jupyter.launch.torch_distributed --trial model_def:Trial"),
        ("python3 train.py --note 'a b'", "train.py --note a b"),
        (
            "python3 -m det_jupyter.launch.deepspeed --trial model_def:Trial",
            "-m det_jupyter.launch.deepspeed --trial model_def:Trial",
        ),
    ],
)
def test_a_startup_hook_is_not_run_and_the_notice_has_what_would_run_it(
    tmp_path: Path, entrypoint: str, started: str
) -> None:
    write(tmp_path, "model_def.py", "class Trial(pytorch.PyTorchTrial): pass\n")
    write(
        tmp_path, "startup-hook.sh", "#!/bin/bash\n# packages\n[[ -d . ]] && export HOOKED=yes\n"
    )
    [notice] = find_unrun_hook(plan_context(tmp_path), entrypoint)
    assert "startup-hook.sh is not run" in notice
    assert "([[ -d . ]] && export HOOKED=yes)" in notice
    line = notice.partition("entrypoint: ")[2]
    python = write(tmp_path, "bin/python3", '#!/bin/sh\necho "$HOOKED" "$@"\n')
    python.chmod(0o755)
    path = f"{python.parent}:{os.environ['PATH']}"
    assert isinstance(parse_entrypoint(line), Command)
    command = ["sh", "-c", line]
    ran = subprocess.run(command, cwd=tmp_path, env={"PATH": path}, capture_output=True, text=True)
    assert ran.stdout == f"yes {started}\n"
    write(tmp_path, "startup-hook.sh", "set -e\nfalse\n")
    failed = subprocess.run(command, cwd=tmp_path, env={"PATH": path}, capture_output=True)
    assert (failed.returncode, failed.stdout) == (1, b"")
    assert list(find_unrun_hook(plan_context(tmp_path), line)) == []  # it is run


@pytest.mark.parametrize(
    ("name", "has_line"),
    [("main", False), ("Plain", False), ("Other", False), ("Base", True), ("Derived", True)],
)
def test_a_startup_hook_is_put_before_trial_classes_only(
    tmp_path: Path, name: str, has_line: bool
) -> None:
    write(
        tmp_path,
        "model_def.py",
        "from elsewhere import Other\ndef main(): pass\nclass Plain: pass\n"
        "class Base(PyTorchTrial): pass\nclass Derived(Plain, Base): pass\n",
    )
    write(tmp_path, "startup-hook.sh", "pip install x\n")
    [notice] = find_unrun_hook(plan_context(tmp_path), f"model_def:{name}")
    assert "(pip install x); run it yourself before" in notice
    assert ("entrypoint: " in notice) is has_line
