"""A journey: an assistant's tool asks in JupyterLab, and gets the user's answer."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from playwright.sync_api import expect

from tests.lab.pages import LabPage
from tests.lab.servers import Lab

KILL = {
    "tool": "kill",
    "title": "An assistant asks to kill",
    "text": "Experiment 7 “digits”\nIt ends now.",
}


@pytest.mark.parametrize(("button", "answer"), [("Yes", "yes"), ("No", "no")])
def test_a_question_of_an_assistant_is_a_dialog(
    ui: LabPage, lab: Lab, button: str, answer: str
) -> None:
    def ask() -> httpx.Response:
        headers = {"Authorization": f"token {lab.token}"}
        return httpx.post(
            f"{lab.root}det-jupyter/questions", json=KILL, headers=headers, timeout=600
        )

    with ThreadPoolExecutor(1) as aside:
        asked = aside.submit(ask)
        dialog = ui.page.get_by_role("dialog")
        expect(dialog).to_contain_text(KILL["title"])
        expect(dialog).to_contain_text("Experiment 7 “digits”")
        dialog.get_by_role("button", name=button).click()
        assert asked.result().json() == {"answer": answer}
    expect(dialog).to_have_count(0)
