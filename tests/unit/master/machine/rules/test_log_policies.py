"""Which log policies are matched, and which lines match them."""

from __future__ import annotations

from typing import Any

import pytest

from det_jupyter.config import notices, parse_config
from det_jupyter.master.machine.model.allocations import Allocation
from det_jupyter.master.machine.rules.log_policies import is_applied, policies_of, policy_label
from det_jupyter.master.service.storing.log_patterns import Matcher, find_pattern_problems
from tests.problems import said
from tests.unit.master.machine_world import make_config


def with_policies(*policies: dict[str, Any]) -> dict[str, Any]:
    return make_config(log_policies=list(policies))


def test_only_policies_with_a_pattern_and_an_action_are_looked_for() -> None:
    config = with_policies(
        {"name": "CUDA OOM"},
        {"name": "ECC Error", "pattern": ".*uncorrectable ECC error.*"},
        {"name": "disk", "pattern": "No space left", "action": "exclude_node"},
        {"pattern": "Traceback", "action": {"type": "cancel_retries"}},
    )
    found = [(p.name, p.pattern, p.action) for p in policies_of(parse_config(config))]
    assert found == [
        ("disk", "No space left", "exclude_node"),
        (None, "Traceback", "cancel_retries"),
    ]


def test_a_configuration_without_policies_has_nothing_to_look_for() -> None:
    assert policies_of(parse_config(make_config())) == ()


def test_a_line_fits_if_the_pattern_is_found_anywhere_in_it() -> None:
    lines = ["fine", "RuntimeError: CUDA out of memory. Tried", "CUDA is out of memory"]
    matcher = Matcher()
    assert matcher.first_in(1, "CUDA.*memory", lines) == "RuntimeError: CUDA out of memory. Tried"
    assert matcher.first_in(1, "CUDA.*memory", ["cuda out of memory"]) is None


def test_a_pattern_that_takes_for_ever_is_given_up() -> None:
    matcher, slow = Matcher(), r"(a|aa)+$"
    assert matcher.first_in(1, slow, ["a" * 60 + "!"]) is None
    assert matcher.first_in(1, slow, ["a"]) is None, "it is looked for no more"
    assert matcher.first_in(1, "a", ["a"]) == "a"
    assert matcher.first_in(2, slow, ["a"]) == "a", "of another experiment it is"


def test_a_pattern_of_another_dialect_is_refused() -> None:
    fine = [f"fine {number}" for number in range(98)]  # all are compiled in one process
    problems = find_pattern_problems([None, *fine, r"\p{Nonsense}"])
    assert [problem.path for problem in problems] == ["log_policies[99].pattern"]


def test_a_pattern_that_takes_for_ever_to_be_made_ready_is_refused() -> None:
    words = "|".join(f"word{number}" * 8 for number in range(3000))
    pattern = f"(?:{words}){{e<=20}}"
    problem, other = said(find_pattern_problems(["fine", pattern, "fine", "(?<"]))
    assert problem.startswith("log_policies[1].pattern: got ")
    assert other.startswith("log_policies[3].pattern: got '(?<', ")
    assert "a simpler one: compiling it takes" in problem
    assert len(problem) < 300


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ({"name": "oom", "pattern": "x+", "action": "cancel_retries"}, "log policy 'oom'"),
        ({"pattern": "x+", "action": "cancel_retries"}, "log policy 'x+'"),
    ],
)
def test_a_policy_is_called_by_its_name_or_else_by_its_pattern(
    policy: dict[str, Any], words: str
) -> None:
    assert policy_label(parse_config(with_policies(policy)), "x+") == words


def test_a_run_that_is_hopeless_or_excludes_the_agent_is_not_watched_for_that_any_more() -> None:
    allocation = Allocation(id="1.1.1", run=1, queued_at=0.0, agent_ids=["a", "b"], excludes=["b"])
    assert not is_applied(allocation, "cancel_retries", 0)
    assert not is_applied(allocation, "exclude_node", 0)
    assert is_applied(allocation, "exclude_node", 1)
    allocation.is_hopeless = True
    assert is_applied(allocation, "cancel_retries", 1)


def test_what_works_has_no_notice() -> None:
    config = with_policies({"pattern": "x", "action": "cancel_retries"})
    config["checkpoint_storage"] |= {"save_experiment_best": 3, "save_trial_latest": 2}
    config["resources"] |= {"weight": 2.0, "max_slots": 4, "resource_pool": "big"}
    config["resources"]["is_single_node"] = False
    assert notices(config) == []
    config["retention_policy"] = {"log_retention_days": 3}
    assert notices(config) == [
        "retention_policy: not in this version: logs are kept with their experiment."
    ]
