"""`det mcp` over stdio, with the SDK's client as the assistant, and real trials."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

import pytest

from det_jupyter.client import Client, Experiment
from tests.processes import DetHome
from tests.trials import submit

pytestmark = pytest.mark.e2e

SOURCE = """
def main(core_context, hparams):
    if hparams["lr"] > 0.9:
        print("WARNING: lr is so high that the loss goes up")
    core_context.train.report_validation_metrics(1, {"error": abs(hparams["lr"] - 0.3)})
"""
CONFIG = {
    "name": "four rates",
    "entrypoint": "main",
    "hyperparameters": {"lr": {"type": "double", "minval": 0.1, "maxval": 1.0, "count": 4}},
    "searcher": {"name": "grid", "metric": "error", "max_length": {"batches": 1}},
}


def test_an_assistant_finds_the_worst_run_and_submits_a_better_one_after_a_yes(
    home: DetHome, client: Client
) -> None:
    # Here, as loading it takes a second of CPU in each process that collects tests.
    from mcp import Client as Assistant
    from mcp import StdioServerParameters
    from mcp.types import ElicitResult

    search = submit(client, CONFIG, SOURCE)
    search.wait()
    questions: list[str] = []

    async def user(context: Any, params: Any) -> ElicitResult:
        questions.append(params.message)
        return ElicitResult(action="accept", content={})

    async def assist() -> dict[str, str]:
        server = StdioServerParameters(
            command=sys.executable,
            args=["-m", "det_jupyter", "mcp"],
            env=dict(os.environ),
        )
        answers = {}
        async with Assistant(server, elicitation_callback=user) as assistant:

            async def call(name: str, **values: Any) -> str:
                result = await assistant.call_tool(name, values)
                text = "\n".join(block.text for block in result.content)
                assert not result.is_error, text
                answers[name] = text
                return text

            await call("list_experiments", sort="metric")
            ranked = (await call("list_trials", id=search.id)).splitlines()
            worst = int(ranked[-1].split()[0])
            await call("logs", id=search.id, trial=worst)
            await call("describe_experiment", id=search.id)
            single = ["searcher.name=single", "searcher.max_length.batches=1"]
            changes = ["name=better", "hyperparameters.lr=0.3", *single]
            await call("fork", id=search.id, config=changes)
        return answers

    answers = asyncio.run(assist())
    assert "four rates" in answers["list_experiments"]
    assert "lr is so high" in json.loads(answers["logs"])["output"]
    assert len(questions) == 1
    assert f"Experiment {search.id} “four rates”" in questions[0]
    assert "hyperparameters.lr=0.3" in questions[0]
    better = Experiment(client, max(view.id for view in client.experiments()))
    assert better.wait() == "COMPLETED"
    assert better.view.name == "better"
    assert better.view.trials[0].best_metric == 0
