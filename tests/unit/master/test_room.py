"""A drive that does not answer holds no request up."""

from __future__ import annotations

import asyncio
import threading

import pytest

from det_jupyter.contract.host import paths
from det_jupyter.master.http import answers


def test_a_drive_that_does_not_answer_is_named_and_looked_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers_again, looks = threading.Event(), []

    def look() -> str:
        looks.append(1)
        answers_again.wait(60)
        return f"full {len(looks)}"

    async def ask() -> None:
        room = answers.Room("/data")
        both = await asyncio.gather(room.problem(), room.problem(kept_s=0))
        for problem in both:
            assert "the drive of /data has not answered for" in problem
        answers_again.set()
        monkeypatch.setattr(answers, "_PATIENCE_S", 60)
        assert await room.problem() == "full 1"
        assert await room.problem() == "full 1"
        assert len(looks) == 1
        assert await room.problem(kept_s=0) == "full 2"

    monkeypatch.setattr(paths, "find_full_folder", look)
    monkeypatch.setattr(answers, "_PATIENCE_S", 0.05)
    asyncio.run(ask())
