"""Options of a configuration for training on several ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from det_jupyter.config import ExperimentConfig
from det_jupyter.errors import ConfigError

Compression = Literal["fp16", "bf16", "powersgd"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelOptions:
    """How models are trained by several ranks together.

    Attributes:
        compression: What gradients are exchanged as; None: as they are.
        bucket_mb: Megabytes of gradients exchanged at a time; None: as many as torch chooses.
        tune_buckets: Whether a BucketTuner is to find the size of buckets.
        sharding: "fsdp" divides parameters, gradients and optimizer states among the ranks.
        compile: Compile models: True, or the name of a backend of `torch.compile`.

    Raises:
        ConfigError: Two options exclude each other.
    """

    compression: Compression | None = None
    bucket_mb: int | None = None
    tune_buckets: bool = False
    sharding: Literal["fsdp"] | None = None
    compile: bool | str = False

    def __post_init__(self) -> None:
        problems = []
        where = "optimizations"
        if self.sharding and self.compression:
            problems.append(
                f"{where}.gradient_compression: {self.compression} does not go with "
                f"{where}.sharding: {self.sharding}, which exchanges parts of gradients itself; "
                "leave one of them out"
            )
        if self.sharding and (self.tune_buckets or self.bucket_mb):
            problems.append(
                f"{where}.sharding: {self.sharding} exchanges block by block and has no buckets; "
                f"leave out {where}.tensor_fusion_threshold and {where}.auto_tune_tensor_fusion"
            )
        if problems:
            raise ConfigError(problems)

    @classmethod
    def of(cls, config: ExperimentConfig) -> ParallelOptions:
        """Return the options of a configuration.

        Raises:
            ConfigError: Options that exclude each other, all of them named.
        """
        asked = config.optimizations
        given = "fp16" if asked.gradient_compression is True else asked.gradient_compression
        compression = next((name for name in get_args(Compression) if name == given), None)
        if compression == "powersgd" and asked.mixed_precision not in ("O0", "bf16"):
            raise ConfigError(
                [
                    "optimizations.gradient_compression: powersgd keeps what it left out of one "
                    "batch for the next, but with optimizations.mixed_precision: "
                    f"{asked.mixed_precision} each batch is scaled differently; "
                    "use mixed_precision: bf16, or gradient_compression: fp16"
                ]
            )
        return cls(
            compression=compression,
            bucket_mb=asked.tensor_fusion_threshold,
            tune_buckets=asked.auto_tune_tensor_fusion,
            sharding=asked.sharding,
            compile=asked.compile,
        )
