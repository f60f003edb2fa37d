"""What a rank reports of the error that ends it."""

from __future__ import annotations

import pytest

from det_jupyter.core.failures import explain, failure_of
from det_jupyter.core.tracebacks import CodeNames
from det_jupyter.errors import ConfigError, PeerRefused


class Unspeakable(ValueError):
    @property
    def __cause__(self) -> BaseException:  # type: ignore[override]
        raise KeyError("no cause")


def test_an_error_that_cannot_be_explained_is_reported_by_its_type() -> None:
    explanation = explain(CodeNames({}, []), Unspeakable("shapes differ"))
    assert explanation.error == "Unspeakable (telling more failed: KeyError)"
    assert explanation.printed == "Unspeakable (telling more failed: KeyError)\n"


def test_a_script_that_lacks_determined_is_told_what_to_install() -> None:
    error = ModuleNotFoundError("No module named 'determined'", name="determined")
    failure = failure_of(
        error, explain(CodeNames({}, []), error), rank=2, is_echo=False, is_early=True
    )
    assert failure.error == (
        "ModuleNotFoundError: No module named 'determined'; code for Determined needs "
        "`pip install det-jupyter-determined`"
    )
    assert failure.rank == 2


@pytest.mark.parametrize(
    ("error", "is_echo", "is_early", "is_final"),
    [
        (ValueError("shapes differ"), False, True, True),  # it would fail again
        (ValueError("shapes differ"), False, False, False),
        (ValueError("connection closed"), True, True, False),  # another rank is the cause
        (PeerRefused("no secret"), False, True, False),
        (ConfigError(["no class"]), False, False, True),
    ],
)
def test_only_a_failure_that_repeats_is_final(
    error: Exception, is_echo: bool, is_early: bool, is_final: bool
) -> None:
    explanation = explain(CodeNames({}, []), error)
    failure = failure_of(error, explanation, rank=0, is_echo=is_echo, is_early=is_early)
    assert failure.final is is_final
    assert failure.error.startswith("another rank is gone: ") is is_echo
