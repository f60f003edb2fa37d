"""Services that Determined's master talks to; there is none here."""

from __future__ import annotations

from det_jupyter.config.fields import Bool, Count, Int, Section, Text


class PachydermPachd(Section):
    """Where Pachyderm is."""

    host: Text
    """Its host."""
    port: Count
    """Its port."""


class PachydermProxy(PachydermPachd):
    """Where Pachyderm's proxy is."""

    scheme: Text
    """http or https."""


class PachydermDataset(Section):
    """What of Pachyderm's data is used."""

    project: Text
    """The project."""
    repo: Text
    """The repository."""
    commit: Text
    """The commit."""
    branch: Text
    """The branch."""
    token: Text
    """The token."""


class Pachyderm(Section):
    """Data from Pachyderm."""

    pachd: PachydermPachd
    """Where Pachyderm is."""
    proxy: PachydermProxy
    """Where its proxy is."""
    dataset: PachydermDataset
    """What of its data is used."""


class Webhooks(Section):
    """Which webhooks are told of the experiment."""

    webhook_id: list[Int] = []
    """Their numbers."""
    webhook_name: list[Text] = []
    """Their names."""
    exclude: Bool = False
    """Tell none."""


class Integrations(Section):
    """Services that the master talks to."""

    pachyderm: Pachyderm | None = None
    """Data from Pachyderm."""
    webhooks: Webhooks | None = None
    """Which webhooks are told of the experiment."""
