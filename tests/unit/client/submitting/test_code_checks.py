"""Checks of an entrypoint's code before submission, without running it."""

from __future__ import annotations

from pathlib import Path

import pytest

from det_jupyter.client.submitting.code_checks import find_code_problems
from det_jupyter.client.submitting.context_notices import find_shadowing
from det_jupyter.contract.trial.context_dir import plan_context
from det_jupyter.contract.values.entrypoints import parse_entrypoint
from tests.problems import said

FILES = {
    "train.py": "print('hi')\n",
    "model_def.py": "import os\nfrom det_jupyter.pytorch import PyTorchTrial\n"
    "class Trial: ...\ndef main(core_context): ...\n",
    "star.py": "from model_def import *\n",
    "broken.py": "import os\nif True\n    pass\n",
    "pkg/__init__.py": "",
    "pkg/deep.py": "limit = 3\nfrom os import path as place\n",
    "run.sh": "#!/bin/sh\n",
    "data/left_out.py": "",
    "sys.py": "",
    ".detignore": "data/\n",
}
MODULES = "(modules there: broken, model_def, pkg, star, sys and train)"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    (tmp_path / "go").write_text("#!/bin/sh\n")
    (tmp_path / "go").chmod(0o755)
    return tmp_path


def problems_of(folder: Path, entrypoint: str | list[str], *, live: bool = False) -> list[str]:
    plan = None if live else plan_context(folder)
    found = find_code_problems(parse_entrypoint(entrypoint), plan, folder)
    return [each.replace(str(folder), "DIR") for each in said(found)]


@pytest.mark.parametrize(
    "entrypoint",
    [
        "model_def:Trial", "model_def:main", "model_def:os.path.join", "star:Anything",
        "pkg.deep:limit", "pkg.deep:place", "json:dumps", "torch.nn:Linear",
        "python3 train.py --x 1", "python3 ./train.py", "python3 -m pkg.deep",
        "python3 -m json.tool",
        "python3 -m det_jupyter.launch.torch_distributed train.py",
        "python3 -m determined.launch.horovod python3 train.py", "./go | tee log", "sh run.sh",
        "cd pkg && sh x", "X=1 ./go", "echo $HOME", ["./go", "a"], ["echo", "hi"], "/bin/sh x",
        "for i in 1 2; do echo $i; done",
    ],
)  # fmt: skip
@pytest.mark.parametrize("live", [False, True])
def test_code_that_is_there_is_fine(folder: Path, entrypoint: str | list[str], live: bool) -> None:
    assert problems_of(folder, entrypoint, live=live) == []


@pytest.mark.parametrize(
    ("entrypoint", "problem"),
    [
        ("Trial", "got 'Trial', which would be a class or function of a notebook; name its module "
                  "too; did you mean model_def:Trial?"),
        ("Other", "got 'Other', which would be a class or function of a notebook; name its module "
                  "too, as in model_def:MyTrial"),
        ("modle_def:Trial", "there is no module modle_def in the context directory DIR, nor an "
                            f"installed one; did you mean model_def? {MODULES}"),
        ("pkg.dep:x", "there is no module pkg.dep in the context directory DIR, nor an installed "
                      "one; did you mean pkg.deep? (modules there: pkg.deep)"),
        ("model_def:Trail",
         "model_def.py has no Trail; did you mean Trial? (classes and functions there: Trial "
         "and main)"),
        ("model_def:PyTorchTrail",  # PyTorchTrial is only imported there
         "model_def.py has no PyTorchTrail (classes and functions there: Trial and main)"),
        ("broken:main", "broken.py, line 2: expected ':'\n    if True\n           ^"),
        ("sys:main",
         "the module sys is Python's own, and sys.py cannot take its place; rename it"),
        ("python3 trian.py", "there is no trian.py in the context directory DIR; did you mean "
                             "train.py?"),
        ("python3 data/left_out.py", "there is no data/left_out.py in the context directory DIR "
                                     "(.detignore leaves data/ out)"),
        ("python3 broken.py", "broken.py, line 2: expected ':'\n    if True\n           ^"),
        ("python3 -m broken", "broken.py, line 2: expected ':'\n    if True\n           ^"),
        ("python3 pkg", "pkg is a folder without a __main__.py; name the script in it"),
        ("python3 -m pkg", "pkg/ has no __main__.py, so `python -m pkg` runs nothing"),
        ("python3 -m det_jupyter.launch.torch_distributed trian.py",
         "there is no trian.py in the context directory DIR; did you mean train.py?"),
        ("python3 -m determined.launch.torchrun train.py",
         "there is no launcher determined.launch.torchrun; there are torch_distributed, "
         "deepspeed, horovod, mpi and wrap_rank"),
        ("python3 -m determined.launch.mpi.main train.py",
         "there is no launcher determined.launch.mpi.main; there are torch_distributed, "
         "deepspeed, horovod, mpi and wrap_rank"),
        ("python3 -m det_jupyter.launch.horovod python3 trian.py",
         "there is no trian.py in the context directory DIR; did you mean train.py?"),
        ("./run.sh", "run.sh is not executable: `chmod +x` it, or name its interpreter"),
        ("./ruun.sh", "there is no ruun.sh in the context directory DIR; did you mean run.sh?"),
        ("go | tee log", "there is no program go on this computer; did you mean ./go?"),
        (["not-a-program", "x"], "there is no program not-a-program on this computer"),
        ("/not/here.py x", "there is no program /not/here.py"),
        ("python3 /not/here.py", "there is no file /not/here.py"),
    ],
)  # fmt: skip
def test_code_that_is_not_there_is_told(
    folder: Path, entrypoint: str | list[str], problem: str
) -> None:
    found = problems_of(folder, entrypoint)
    assert found == [f"entrypoint: {problem}"]


def test_without_a_context_the_folder_itself_is_looked_at(folder: Path) -> None:
    (problem,) = problems_of(folder, "python3 trian.py", live=True)
    assert problem == "entrypoint: there is no trian.py in the folder DIR; did you mean train.py?"


def test_modules_that_hide_others_are_told(folder: Path) -> None:
    (folder / "torch").mkdir()
    (folder / "torch" / "__init__.py").write_text("")
    (folder / "random.py").write_text("")
    assert problems_of(folder, "python3 train.py") == [
        "context: torch/ would take the place of the installed torch, which ranks need; rename it"
    ]
    assert find_shadowing(plan_context(folder)) == [
        "context: random.py has the name of a module of Python: whatever imports random in the "
        "ranks gets it"
    ]


def test_what_another_path_may_have_is_not_refused(folder: Path) -> None:
    for entrypoint in ("src_model:Trial", "python3 -m src_model", "unheard-of-program --x"):
        meaning, plan = parse_entrypoint(entrypoint), plan_context(folder)
        (_,) = find_code_problems(meaning, plan, folder)
        others = ["PYTHONPATH", "PATH"]
        assert find_code_problems(meaning, plan, folder, others) == []
