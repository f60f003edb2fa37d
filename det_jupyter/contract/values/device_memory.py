"""Which processes held a GPU's memory when an allocation of a rank failed."""

from __future__ import annotations

from dataclasses import dataclass

from det_jupyter.contract.values.bounds import Count, PrintableText, ProcessId
from det_jupyter.contract.values.text import size

_MOST_OTHERS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceHolder:
    """Another process on the GPU, and the memory that it holds there."""

    pid: ProcessId
    name: PrintableText
    num_bytes: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceShortage:
    """The memory of a GPU, in bytes, when an allocation failed.

    Args:
        total: The memory of the GPU.
        used: The memory that all processes use.
        allocated: The memory of this rank's tensors.
        reserved: The memory that the rank's allocator has reserved, tensors included.
        others: The other processes, as far as NVML lists them; the largest first.
        batch_size: Records of a batch on this rank; None: unknown.
    """

    total: Count
    used: Count
    allocated: Count
    reserved: Count
    others: tuple[DeviceHolder, ...] = ()
    batch_size: Count | None = None

    def __str__(self) -> str:
        unused = max(0, self.reserved - self.allocated)
        listed = sum(other.num_bytes for other in self.others)
        rest = max(0, self.used - self.reserved - listed)
        held = [f"this rank's tensors {size(self.allocated)}"]
        if unused > 0.02 * self.total:
            held.append(f"reserved by its allocator and not in use {size(unused)}")
        held += [f"{other.name} (pid {other.pid}) {size(other.num_bytes)}"
                 for other in self.others[:_MOST_OTHERS]]  # fmt: skip
        unlisted = "" if self.others else " and other processes"
        held.append(f"its CUDA context{unlisted} {size(rest)}")
        return f"of {size(self.total)}: {', '.join(held)}; try {', '.join(self._remedies())}"

    def _remedies(self) -> list[str]:
        now = f" ({self.batch_size} records per rank now)" if self.batch_size else ""
        remedies = [f"smaller batches{now} with aggregation_frequency"]
        remedies += ["mixed_precision", "sharding"]
        if self.reserved - self.allocated > 0.1 * self.total:
            remedies.insert(0, "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True")
        if self.used - self.reserved > 0.25 * self.total:
            pids = ", ".join(str(other.pid) for other in self.others[:_MOST_OTHERS])
            remedies.insert(0, f"ending the other processes{f' ({pids})' if pids else ''}")
        return remedies
