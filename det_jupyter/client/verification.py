"""What `verify_resume` came to, and how it shows itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from html import escape

_DONE = {"pause": "paused", "kill": "killed"}
_SHOWN = 5
_CAUSES = (
    "GPU kernels without a deterministic variant: call torch.use_deterministic_algorithms(True) "
    "in the trial and add CUBLAS_WORKSPACE_CONFIG=:4096:8 to "
    "environment.environment_variables; torch then names the kernel if there is none",
    "a random generator of the trial's own: seed it from context.get_trial_seed() and keep its "
    "state in a callback's state_dict",
    "state that lives outside of models, optimizers, schedulers and callbacks: keep it in a "
    "callback's state_dict",
    "code that depends on the time, on the order of a set or of files, or on how long it has run",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What came out; prints as a sentence.

    Attributes:
        interruptions: What happened to the interrupted run, such as ("pause", 7), in order.
        steps_completed: Batches that both were trained.
        tensors: How many were compared.
        differences: Name and problem of each, in the checkpoint's order.
        straight_id, interrupted_id: The experiments, which are deleted if all is well.
    """

    interruptions: tuple[tuple[str, int], ...]
    steps_completed: int
    tensors: int
    differences: tuple[tuple[str, str], ...] = field(repr=False)
    straight_id: int
    interrupted_id: int

    @property
    def is_identical(self) -> bool:
        """Whether the interruptions changed nothing, bit for bit."""
        return not self.differences

    def __bool__(self) -> bool:
        return self.is_identical

    def __repr__(self) -> str:
        return "\n".join(self._lines(lambda text: text))

    def _repr_html_(self) -> str:
        head, *rest = self._lines(escape)
        mark = "✓" if self.is_identical else "✗"
        return f"<div>{mark} <b>{head}</b><pre>{chr(10).join(rest)}</pre></div>"

    def _lines(self, shown: Callable[[str], str]) -> list[str]:
        what = ", ".join(f"{steps} ({_DONE[kind]})" for kind, steps in self.interruptions)
        after = f"interrupted after batch {what}"
        if self.is_identical:
            end = f"{self.tensors} tensors at batch {self.steps_completed}"
            return [shown(f"identical: {end}, {after}")]
        name, problem = self.differences[0]
        lines = [f"differs first in {name}: {problem}"]
        lines.append(
            f"{after}; {len(self.differences)} values differ at batch {self.steps_completed} "
            f"(experiments {self.straight_id} and {self.interrupted_id} are kept)"
        )
        lines += [f"  {name}: {problem}" for name, problem in self.differences[1:_SHOWN]]
        lines.append("What may be the cause:")
        lines += [f"  • {cause}" for cause in _CAUSES]
        return [shown(line) for line in lines]
