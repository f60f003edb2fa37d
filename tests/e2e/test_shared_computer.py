"""Two masters of one computer share its slots fairly, with real trials."""

from __future__ import annotations

import pytest

from tests import sharing

pytestmark = [pytest.mark.e2e, pytest.mark.long]


def test_trials_of_two_users_wait_equally_long_and_never_share_a_slot(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert sharing.main(["--trials", "30", "--slots", "4", "--seconds", "1"]) == 0
    shown = capsys.readouterr().out
    assert "used by another master · " in shown
    assert "trials have had slots" in shown or "trial has had slot" in shown
