"""A submission may be repeated: its key makes one experiment, also if a master is killed."""

from __future__ import annotations

import json

import httpx
import pytest

from det_jupyter.client import Client
from det_jupyter.connection import Session
from det_jupyter.contract.messages import ContinueTrial, MasterInfo
from det_jupyter.errors import ConfigError, MasterUnreachable
from tests.integration.master_support import make_request
from tests.problems import refusal
from tests.unit.test_connection import info
from tests.unit.view.view_samples import experiment, trial


class Master:
    """Answers submissions, or breaks the line after it was asked; notes the keys."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.breaks = 0  # so many answers are lost
        self.refuses = False

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return httpx.Response(200, json={})
        self.keys.append(json.loads(request.content)["key"])
        if self.breaks:
            self.breaks -= 1
            raise httpx.ReadError("connection reset", request=request)
        if self.refuses:
            return httpx.Response(422, json=refusal("ConfigError", "wrong"))
        return httpx.Response(201, content=experiment(trial()).model_dump_json())


@pytest.fixture
def master() -> Master:
    return Master()


def client_of(master: Master, *, finds_another: bool = True) -> Client:
    def locate() -> MasterInfo:
        if not finds_another:
            raise MasterUnreachable("no master")
        return info(2)

    transport = httpx.MockTransport(master)
    return Client(Session(info(1), locate=locate, transport=transport))


def test_a_submission_whose_answer_is_lost_is_made_again_with_its_key(master: Master) -> None:
    master.breaks = 1
    client_of(master).create(make_request())
    first, second = master.keys
    assert first == second != ""


def test_two_submissions_of_the_same_are_two_experiments(master: Master) -> None:
    client = client_of(master)
    client.create(make_request())
    client.create(make_request())
    first, second = master.keys
    assert first != second


def test_the_same_cell_run_again_after_no_answer_asks_with_the_same_key(master: Master) -> None:
    master.breaks = 1
    client = client_of(master, finds_another=False)
    with pytest.raises(MasterUnreachable):
        client.create(make_request())
    client.create(make_request())
    client.create(make_request())  # on purpose: there was an answer
    lost, again, anew = master.keys
    assert lost == again != anew


def test_another_cell_run_after_no_answer_has_a_key_of_its_own(master: Master) -> None:
    master.breaks = 1
    client = client_of(master, finds_another=False)
    with pytest.raises(MasterUnreachable):
        client.create(make_request())
    client.create(make_request(name="other"))
    client.create(make_request())
    lost, other, again = master.keys
    assert lost == again != other


def test_a_refused_submission_is_done_with(master: Master) -> None:
    client = client_of(master)
    master.refuses = True
    with pytest.raises(ConfigError):
        client.create(make_request())
    master.refuses = False
    client.create(make_request())
    first, second = master.keys
    assert first != second


def test_a_trial_trained_on_is_submitted_with_a_key_too(master: Master) -> None:
    master.breaks = 1
    client_of(master).continue_trial(1, ContinueTrial(length=5))
    first, second = master.keys
    assert first == second != ""
