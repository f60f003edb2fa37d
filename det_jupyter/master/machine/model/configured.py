"""A configuration of the machine: stored as a document, used as the class that it is parsed to."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from det_jupyter.config import ExperimentConfig, parse_config
from det_jupyter.contract.messages import Wire


class Configured(Wire):
    """An event or experiment with an effective configuration.

    Only the document is stored. Who has the class sets `settings`, so that it is not parsed again.
    """

    config: dict[str, Any]

    @cached_property
    def settings(self) -> ExperimentConfig:
        """The configuration, parsed.

        Raises:
            ConfigError: Another version of det_jupyter stored it, and this one cannot parse it.
        """
        return parse_config(self.config)
