"""`det_jupyter.templates`: the master's templates of configurations."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from det_jupyter.client.submitting.drafts import read_file
from det_jupyter.config import parse_part, read_changes
from det_jupyter.contract.messages import TemplateView
from det_jupyter.front.notebook.handles import connection


class Templates:
    """Partial configurations by name, stored by the master."""

    def set(self, name: str, config: Mapping[str, Any] | str | Path) -> None:
        """Store a template; one of the same name is replaced.

        Args:
            name: Letters, digits and any of . _ + -.
            config: A dict, in which keys may have dots (`searcher.max_length.epochs`), YAML, or
                the Path of a file.

        Raises:
            ConfigError: Everything that is wrong with it; nothing is stored then.
        """
        text = read_file(config) if isinstance(config, Path) else config
        document = parse_part(text) if isinstance(text, str) else read_changes(text)
        connection.client().set_template(name, document)

    def get(self, name: str) -> dict[str, Any]:
        """Return a template's configuration.

        Raises:
            NotFound: It does not exist.
        """
        return connection.client().template(name).config

    def list(self) -> list[TemplateView]:
        """Return all templates, sorted by name."""
        return connection.client().templates()

    def delete(self, name: str) -> None:
        """Delete a template; experiments that were made with it do not change.

        Raises:
            NotFound: It does not exist.
        """
        connection.client().delete_template(name)

    def __repr__(self) -> str:
        names = [template.name for template in self.list()]
        return f"Templates: {', '.join(names) if names else 'none yet'}"


templates = Templates()
