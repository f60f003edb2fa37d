"""Samples that wait to be sent are bounded; reasons are sent when they are new."""

from __future__ import annotations

import pytest

from det_jupyter.agent.sampler import box as box_module
from det_jupyter.agent.sampler.box import SampleBox


def test_samples_are_sent_once_at_most_once_a_second_and_without_digits_of_noise() -> None:
    box = SampleBox(clock=iter([5.0, 6.0]).__next__)
    assert not box.is_due(100.0)
    box.put({"host": {"cpu_util_simple": 12.3456}, "gpu:a": {}})
    assert box.is_due(100.0)
    report = box.take(100.0)
    assert [(s.at, s.values) for s in report.samples] == [
        (5.0, {"host": {"cpu_util_simple": 12.35}})
    ]
    box.put({"host": {"cpu_util_simple": 1.0}})
    assert not box.is_due(100.9)
    assert [sample.at for sample in box.take(101.0).samples] == [6.0]
    assert not box.is_due(200.0)


def test_without_a_master_the_oldest_samples_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(box_module, "MAX_VALUES", 10)
    monkeypatch.setattr(box_module, "REPORT_VALUES", 6)
    box = SampleBox(clock=map(float, range(1005)).__next__)
    for _ in range(1000):
        box.put({"host": {"memory_free": 1.0, "cpu_util_simple": 2.0}})
    first = box.take(0.0)
    assert box.is_due(0.0)  # the rest follows at once
    samples = first.samples + box.take(0.0).samples
    assert [sample.at for sample in samples] == [995, 996, 997, 998, 999]
    assert len(first.samples) == 3  # of two values each
    for _ in range(5):  # what was taken leaves room
        box.put({"host": {"memory_free": 1.0, "cpu_util_simple": 2.0}})
    assert [sample.at for sample in box.take(1.0).samples] == [1000, 1001, 1002]


def test_a_sample_of_more_values_than_a_report_should_have_is_sent_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(box_module, "REPORT_VALUES", 2)
    box = SampleBox(clock=map(float, range(1000)).__next__)
    for num in (3, 1, 1, 1):
        box.put({"host": {f"value-{index}": 1.0 for index in range(num)}})
    taken = []
    while box.is_due(0.0):
        taken.append([sample.at for sample in box.take(0.0).samples])
    assert taken == [[0.0], [1.0, 2.0], [3.0]]


def test_a_reason_is_sent_when_it_is_new_and_all_to_a_new_master() -> None:
    box = SampleBox()
    box.set_missing("host", {"disk_iops": "a container"})
    box.set_missing("rank:1.1.1:0", {"gpu_memory": "no GPU"})
    assert box.take(0.0).missing == {
        "host": {"disk_iops": "a container"},
        "rank:1.1.1:0": {"gpu_memory": "no GPU"},
    }
    box.set_missing("host", {"disk_iops": "a container"})
    assert not box.is_due(100.0)
    box.set_missing("host", {"disk_iops": "no permission"})
    assert box.take(100.0).missing == {"host": {"disk_iops": "no permission"}}
    box.drop({"rank:1.1.1:0"})
    box.reconnected()
    assert box.take(200.0).missing == {"host": {"disk_iops": "no permission"}}
    box.set_missing("host", {})
    box.reconnected()
    assert not box.is_due(300.0)
