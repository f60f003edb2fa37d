"""States of the random number generators."""

from __future__ import annotations

import random

import numpy
import torch

from det_jupyter.pytorch.rng import get_states, seed_everything, set_states


def draw() -> tuple[float, float, float]:
    return random.random(), float(numpy.random.rand()), float(torch.rand(()))


def test_restored_generators_draw_the_same_again() -> None:
    seed_everything(5)
    draw()
    numpy.random.normal()  # leaves a second number waiting
    states = get_states()
    expected = [draw() for _ in range(3)] + [float(numpy.random.normal())]
    set_states(states)
    assert [draw() for _ in range(3)] + [float(numpy.random.normal())] == expected
