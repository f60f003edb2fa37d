"""Warnings about room on disks, as text."""

from __future__ import annotations

from contextlib import suppress

from det_jupyter.client import Client
from det_jupyter.contract.messages import ClusterView
from det_jupyter.contract.values.reader import Reader
from det_jupyter.errors import DetError


def room_notes(client: Client, experiment_id: int, reader: Reader) -> list[str]:
    """Return warnings about room for an experiment that was submitted; [] if they are unknown."""
    notes: list[str] = []
    with suppress(DetError):  # the experiment is submitted: a warning that fails is no error
        expected = client.room_forecast(experiment_id)
        notes += [] if expected.fits else [expected.sentence]
        notes += disk_notes(client.cluster(limit=0), reader)
    return notes


def disk_notes(view: ClusterView, reader: Reader) -> list[str]:
    """Return a sentence for each disk that is full, or will be soon."""
    return [status.sentence(reader) for status in view.disks]
