"""Configurations in the machine: stored as a document, used as the class that it is parsed to."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Self

from det_jupyter.config import ExperimentConfig, parse_config
from det_jupyter.contract.messages import Wire


class Configured(Wire):
    """An event or experiment with an effective configuration, stored as a document."""

    config: dict[str, Any]

    @cached_property
    def settings(self) -> ExperimentConfig:
        """The configuration, parsed.

        Raises:
            ConfigError: Another version of det_jupyter stored it, and this one cannot parse it.
        """
        return parse_config(self.config)

    def with_settings(self, settings: ExperimentConfig) -> Self:
        """Set the parsed configuration, so that it is not parsed again; return this object."""
        self.__dict__["settings"] = settings  # pydantic 2.8 refuses to set it as an attribute
        return self
