"""Callbacks: who is called, in which order, with what; and what becomes of errors and of state."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

from det_jupyter.errors import ConfigError
from det_jupyter.pytorch.trial.callback import EarlyStopping, PyTorchCallback
from det_jupyter.pytorch.trial.callback_runner import Callbacks
from det_jupyter.pytorch.trial.trial_info import ContextInfo
from tests.problems import said

HOOKS: dict[str, tuple[Any, ...]] = {
    "on_trial_startup": (3, None),
    "on_training_start": (),
    "on_training_epoch_start": (1,),
    "on_training_epoch_end": (1,),
    "on_training_batch_start": ("batch", 1, 7),
    "on_training_batch_end": ({"loss": 2.0}, 1, 7),
    "on_training_workload_end": ({"loss": 2.0}, [{"loss": 2.0}]),
    "on_validation_start": (),
    "on_validation_epoch_start": (),
    "on_validation_batch_end": ({"error": 1.0}, 0),
    "on_validation_epoch_end": ([{"error": 1.0}],),
    "on_validation_end": ({"error": 1.0},),
    "on_checkpoint_load_start": ({},),
    "on_checkpoint_save_start": ({},),
    "on_checkpoint_write_end": (Path("checkpoint"),),
    "on_checkpoint_upload_end": ("uuid",),
    "on_interrupt": (),
    "on_trial_shutdown": (),
}


def recorder(*hooks: str, calls: list[tuple[Any, ...]], name: str = "") -> PyTorchCallback:
    """Return a callback whose class overrides these hooks, noting its calls."""

    def noting(hook: str) -> Any:
        return lambda self, *args: calls.append((f"{name}{hook}", *args))

    made: PyTorchCallback = type("Recorder", (PyTorchCallback,), {h: noting(h) for h in hooks})()
    return made


class Stateful(PyTorchCallback):
    def __init__(self) -> None:
        self.count = 0

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.count = state_dict["count"]


class Failing(PyTorchCallback):
    def on_training_start(self) -> None:
        raise KeyError("missing")

    def on_trial_shutdown(self) -> None:
        raise OSError("disk full")


@pytest.mark.parametrize("hook", HOOKS)
def test_each_hook_reaches_who_overrides_it_with_its_arguments(hook: str) -> None:
    calls: list[tuple[Any, ...]] = []
    callbacks = Callbacks({"one": recorder(hook, calls=calls), "other": PyTorchCallback()})
    getattr(callbacks, hook)(*HOOKS[hook])
    assert calls == [(hook, *HOOKS[hook])]
    assert [other for other in HOOKS if callbacks.overrides(other)] == [hook]


def test_no_hook_is_forgotten() -> None:
    defined = {name for name in vars(PyTorchCallback) if name.startswith("on_")}
    assert defined == {*HOOKS, "on_exception", "on_checkpoint_end"}


def test_hooks_run_in_the_order_of_the_dict_and_shutdown_in_the_reverse_one() -> None:
    calls: list[tuple[Any, ...]] = []
    hooks = ("on_training_start", "on_trial_shutdown")
    named = {name: recorder(*hooks, calls=calls, name=name) for name in ("b:", "a:")}
    callbacks = Callbacks(named)
    callbacks.on_training_start()
    callbacks.on_trial_shutdown()
    assert [call[0] for call in calls] == [
        "b:on_training_start",
        "a:on_training_start",
        "a:on_trial_shutdown",
        "b:on_trial_shutdown",
    ]


def test_only_callbacks_that_override_a_hook_are_found() -> None:
    calls: list[tuple[Any, ...]] = []
    idle, busy, patched = PyTorchCallback(), recorder("on_interrupt", calls=calls), Stateful()
    patched.on_interrupt = lambda: None  # type: ignore[method-assign]  # as people do in notebooks
    named = Callbacks({"idle": idle, "busy": busy, "patched": patched})
    assert named.overrides("on_interrupt")
    assert not named.overrides("on_validation_end")


def test_an_error_in_a_hook_names_the_callback_and_the_hook() -> None:
    callbacks = Callbacks({"fails": Failing()})
    with pytest.raises(KeyError) as caught:
        callbacks.on_training_start()
    assert caught.value.__notes__ == ["raised in on_training_start of the callback 'fails'"]


def test_all_are_shut_down_even_if_one_raises() -> None:
    calls: list[tuple[Any, ...]] = []
    callbacks = Callbacks(
        {
            "first": recorder("on_trial_shutdown", calls=calls),
            "fails": Failing(),
            "fails_too": Failing(),
        }
    )
    with pytest.raises(OSError, match="disk full") as caught:
        callbacks.on_trial_shutdown()
    assert calls == [("on_trial_shutdown",)]
    assert caught.value.__notes__ == [
        "raised in on_trial_shutdown of the callback 'fails_too'",
        "and then OSError: disk full (raised in on_trial_shutdown of the callback 'fails')",
    ]


def test_callbacks_hear_of_the_exception_that_ends_training_and_then_of_the_end() -> None:
    calls: list[tuple[Any, ...]] = []
    callbacks = Callbacks(
        {"one": recorder("on_exception", "on_trial_shutdown", calls=calls), "fails": Failing()}
    )
    error = ValueError("diverged")
    with pytest.raises(ValueError, match="diverged") as caught, callbacks.running():
        raise error
    assert calls == [("on_exception", error), ("on_trial_shutdown",)]
    assert caught.value.__notes__ == [
        "and then OSError: disk full (raised in on_trial_shutdown of the callback 'fails')"
    ]


def test_a_keyboard_interrupt_is_an_exception_too() -> None:
    calls: list[tuple[Any, ...]] = []
    callbacks = Callbacks({"one": recorder("on_exception", calls=calls)})
    with pytest.raises(KeyboardInterrupt), callbacks.running():
        raise KeyboardInterrupt
    assert [hook for hook, _ in calls] == ["on_exception"]


def test_without_an_error_there_is_no_on_exception() -> None:
    calls: list[tuple[Any, ...]] = []
    callbacks = Callbacks({"one": recorder("on_exception", "on_trial_shutdown", calls=calls)})
    with callbacks.running():
        calls.append(("body",))
    assert calls == [("body",), ("on_trial_shutdown",)]


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (None, "build_callbacks: got None, expected a dict of PyTorchCallbacks by name; "
               "does it lack a `return`?"),
        ([], "build_callbacks: got [], expected a dict of PyTorchCallbacks by name"),
        (
            {1: PyTorchCallback(), "early": Failing, "number": 3},
            "build_callbacks: got the name 1, expected a string\n"
            "build_callbacks: 'early' is the class Failing; create one: Failing()\n"
            "build_callbacks: 'number' is 3, expected a PyTorchCallback",
        ),
    ],
)  # fmt: skip
def test_anything_but_callbacks_by_name_is_refused(returned: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Callbacks(returned)
    assert str(caught.value) == message


def test_an_epoch_start_without_argument_is_tolerated_with_one_warning() -> None:
    class Older(PyTorchCallback):
        starts = 0

        def on_training_epoch_start(self) -> None:  # type: ignore[override]  # Determined's older form
            self.starts += 1

    older = Older()
    with pytest.warns(UserWarning, match="of 'older': it is given the epoch's index") as caught:
        callbacks = Callbacks({"older": older})
    callbacks.on_training_epoch_start(0)
    callbacks.on_training_epoch_start(1)
    assert (older.starts, len(caught)) == (2, 1)


def test_a_hook_whose_arguments_cannot_be_read_is_given_the_epoch() -> None:
    class Compiled:
        __signature__ = 3  # as of code in C, inspect finds none

        def __call__(self, epoch_idx: int) -> None:
            calls.append(epoch_idx)

    calls: list[int] = []
    callback = PyTorchCallback()
    callback.on_training_epoch_start = Compiled()  # type: ignore[method-assign]
    Callbacks({"one": callback}).on_training_epoch_start(4)
    assert calls == [4]


def test_the_older_name_of_write_end_is_called_after_the_newer_one() -> None:
    calls: list[tuple[Any, ...]] = []
    callback = recorder("on_checkpoint_end", "on_checkpoint_write_end", calls=calls)
    with pytest.warns(FutureWarning, match="of 'one': name it on_checkpoint_write_end"):
        callbacks = Callbacks({"one": callback})
    callbacks.on_checkpoint_write_end(Path("there"))
    assert calls == [
        ("on_checkpoint_write_end", Path("there")),
        ("on_checkpoint_end", Path("there")),
    ]


def test_only_the_chief_warns() -> None:
    calls: list[tuple[Any, ...]] = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Callbacks({"one": recorder("on_checkpoint_end", calls=calls)}, is_chief=False)


def test_states_are_kept_by_name() -> None:
    saved = Callbacks({"one": Stateful(), "idle": PyTorchCallback()})
    kept = saved.by_name["one"]
    assert isinstance(kept, Stateful)
    kept.count = 5
    state = saved.state_dict()
    assert state == {"one": {"count": 5}, "idle": {}}
    loaded = Stateful()
    Callbacks({"one": loaded}).load_state_dict(state)
    assert loaded.count == 5


def test_a_callback_without_saved_state_starts_afresh_with_one_warning() -> None:
    first, second = Stateful(), Stateful()
    callbacks = Callbacks({"first": first, "second": second, "idle": PyTorchCallback()})
    with pytest.warns(UserWarning, match="no state of 'first', 'second': starting afresh") as got:
        callbacks.load_state_dict({})
    assert (first.count, second.count, len(got)) == (0, 0, 1)


def test_state_of_a_callback_that_is_gone_is_ignored_with_a_warning() -> None:
    with pytest.warns(UserWarning, match="the state of 'gone', which build_callbacks does not"):
        Callbacks({}).load_state_dict({"gone": {"count": 5}, "stateless": {}})


@pytest.mark.parametrize(
    ("values", "options", "stops_after"),
    [
        ([3.0, 2.0, 2.0, 2.5], {}, 4),
        ([3.0, 2.0, 2.5, 1.0, 1.0], {}, None),
        ([0.1, 0.2, 0.2, 0.1], {"smaller_is_better": False}, 4),
        ([3.0, 2.9, 2.7, 2.6], {"min_delta": 0.25}, None),  # 2.7 is better than 3.0 by enough
        ([3.0, 2.9, 2.8], {"min_delta": 0.5}, 3),
        ([float("nan"), float("nan")], {}, 2),
        ([3.0, float("nan"), 2.0, float("nan")], {}, None),
    ],
)
def test_early_stopping_asks_to_stop_after_too_many_stale_validations(
    values: list[float], options: dict[str, Any], stops_after: int | None
) -> None:
    context = ContextInfo()
    early = EarlyStopping(context, "error", patience=2, **options)
    seen = []
    for value in values:
        early.on_validation_end({"error": value})
        seen.append(context.get_stop_requested())
    assert seen == [stops_after is not None and n >= stops_after for n in range(1, len(seen) + 1)]


def test_early_stopping_goes_on_counting_after_a_pause() -> None:
    before, context = EarlyStopping(ContextInfo(), "error", patience=2), ContextInfo()
    before.on_validation_end({"error": 1.0})
    before.on_validation_end({"error": 1.5})
    after = EarlyStopping(context, "error", patience=2)
    after.load_state_dict(before.state_dict())
    after.on_validation_end({"error": 1.2})
    assert context.get_stop_requested()


def test_early_stopping_names_the_metrics_that_there_are() -> None:
    early = EarlyStopping(ContextInfo(), "eror", patience=1)
    with pytest.raises(
        ConfigError, match="EarlyStopping: got the metric 'eror'; the validation has er"
    ):
        early.on_validation_end({"error": 1.0})


def test_early_stopping_tells_all_that_is_wrong_with_its_arguments() -> None:
    with pytest.raises(ConfigError) as caught:
        EarlyStopping(ContextInfo(), "error", patience=0, min_delta=-1.0)
    assert said(caught.value.problems) == [
        "EarlyStopping: got patience 0, expected at least 1",
        "EarlyStopping: got min_delta -1.0, expected at least 0",
    ]
