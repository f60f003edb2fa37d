"""`det_jupyter.templates`: the templates that the master keeps, from Python."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from det_jupyter.client.drafts import read_file
from det_jupyter.config import parse_part, read_changes
from det_jupyter.contract.messages import TemplateView
from det_jupyter.front.notebook.handles import connection


class Templates:
    """Parts of configurations, by name. Holds nothing: the master keeps them."""

    def set(self, name: str, config: Mapping[str, Any] | str | Path) -> None:
        """Keep a template, instead of what had its name.

        Args:
            name: Letters, digits and any of . _ + -.
            config: A document, in which keys may have dots (`searcher.max_length.epochs`), its
                YAML, or the file that holds it.

        Raises:
            ConfigError: Everything that is wrong with it; nothing is kept then.
        """
        text = read_file(config) if isinstance(config, Path) else config
        document = parse_part(text) if isinstance(text, str) else read_changes(text)
        connection.client().set_template(name, document)

    def get(self, name: str) -> dict[str, Any]:
        """Return what is in a template.

        Raises:
            NotFound: There is none of that name.
        """
        return connection.client().template(name).config

    def list(self) -> list[TemplateView]:
        """Return all templates, sorted by name."""
        return connection.client().templates()

    def delete(self, name: str) -> None:
        """Forget a template; experiments that were made with it do not change.

        Raises:
            NotFound: There is none of that name.
        """
        connection.client().delete_template(name)

    def __repr__(self) -> str:
        names = [template.name for template in self.list()]
        return f"Templates: {', '.join(names) if names else 'none yet'}"


templates = Templates()
