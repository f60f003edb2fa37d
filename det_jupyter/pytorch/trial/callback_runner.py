"""Runs the hooks of a trial's callbacks."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Concatenate, ParamSpec

from det_jupyter.contract.values.text import error_text
from det_jupyter.pytorch.messages import TrialMistake, warn_user
from det_jupyter.pytorch.trial.callback import PyTorchCallback

HookArgs = ParamSpec("HookArgs")


def _runner_of(
    hook: Callable[Concatenate[PyTorchCallback, HookArgs], None],
) -> Callable[Concatenate[Callbacks, HookArgs], None]:
    """Return a method of Callbacks that runs this hook of all callbacks."""
    name = hook.__name__

    def run(self: Callbacks, /, *args: HookArgs.args, **kwargs: HookArgs.kwargs) -> None:
        self._run(name, *args, **kwargs)

    return run


class Callbacks:
    """The callbacks of a trial. A hook that no callback overrides costs almost nothing.

    Exceptions of a hook get a note that names the callback and the hook.

    Args:
        callbacks: Returned by the trial's `build_callbacks`.
        is_chief: Whether this is the rank that issues warnings.

    Raises:
        TrialMistake: `callbacks` is no dict of callbacks by name.
    """

    def __init__(self, callbacks: Mapping[str, PyTorchCallback], *, is_chief: bool = True) -> None:
        _check_callbacks(callbacks)
        self.by_name = dict(callbacks)
        self._is_chief = is_chief
        self._calls: dict[str, list[tuple[str, Callable[..., Any]]]] = {
            hook: [
                (name, getattr(callback, hook))
                for name, callback in callbacks.items()
                if _overrides(callback, hook)
            ]
            for hook in _HOOKS
        }
        self._calls["on_trial_shutdown"].reverse()
        self._adapt_older_forms()

    def time(self, timed: Callable[[Callable[..., None]], Callable[..., None]]) -> None:
        """Wrap the function that runs hooks in a timer: `timed` returns the wrapped function."""
        if self.by_name:
            self._run = timed(self._run)  # type: ignore[method-assign]

    @property
    def keep_state(self) -> bool:
        """Whether any callback has a state to save."""
        return any(_overrides(callback, "state_dict") for callback in self.by_name.values())

    def overrides(self, hook: str) -> bool:
        """Return whether a callback overrides the hook, so that its arguments are needed."""
        return bool(self._calls[hook])

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run `on_exception` if the block raises, and `on_trial_shutdown` in any case.

        Raises the block's exception; exceptions of the hooks that run after it are added as notes.
        """
        try:
            yield
        except BaseException as error:  # an exit too: the hooks run in any case
            failures = self._run_all("on_exception", error)
            for failure in failures + self._run_all("on_trial_shutdown"):
                error.add_note(f"and then {_describe(failure)}")
            raise
        self.on_trial_shutdown()

    on_trial_startup = _runner_of(PyTorchCallback.on_trial_startup)
    on_training_start = _runner_of(PyTorchCallback.on_training_start)
    on_training_epoch_start = _runner_of(PyTorchCallback.on_training_epoch_start)
    on_training_epoch_end = _runner_of(PyTorchCallback.on_training_epoch_end)
    on_training_batch_start = _runner_of(PyTorchCallback.on_training_batch_start)
    on_training_batch_end = _runner_of(PyTorchCallback.on_training_batch_end)
    on_training_workload_end = _runner_of(PyTorchCallback.on_training_workload_end)
    on_validation_start = _runner_of(PyTorchCallback.on_validation_start)
    on_validation_epoch_start = _runner_of(PyTorchCallback.on_validation_epoch_start)
    on_validation_batch_end = _runner_of(PyTorchCallback.on_validation_batch_end)
    on_validation_epoch_end = _runner_of(PyTorchCallback.on_validation_epoch_end)
    on_validation_end = _runner_of(PyTorchCallback.on_validation_end)
    on_checkpoint_load_start = _runner_of(PyTorchCallback.on_checkpoint_load_start)
    on_checkpoint_save_start = _runner_of(PyTorchCallback.on_checkpoint_save_start)
    on_checkpoint_upload_end = _runner_of(PyTorchCallback.on_checkpoint_upload_end)
    on_interrupt = _runner_of(PyTorchCallback.on_interrupt)

    def on_checkpoint_write_end(self, checkpoint_dir: Path) -> None:
        """Run the hook of all callbacks, under both of its names. On the chief."""
        self._run("on_checkpoint_write_end", checkpoint_dir)
        self._run("on_checkpoint_end", checkpoint_dir)

    def on_trial_shutdown(self) -> None:
        """Run the hook of all callbacks, last one first; then raise the first error."""
        failures = self._run_all("on_trial_shutdown")
        for failure in failures[1:]:
            failures[0].add_note(f"and then {_describe(failure)}")
        if failures:
            raise failures[0]

    def state_dict(self) -> dict[str, dict[str, Any]]:
        """Return the states of all callbacks, by name."""
        return {name: callback.state_dict() for name, callback in self.by_name.items()}

    def load_state_dict(self, states: Mapping[str, dict[str, Any]]) -> None:
        """Restore each callback. Warns of callbacks without a state, and of unused states."""
        fresh = [
            name
            for name, callback in self.by_name.items()
            if name not in states and _overrides(callback, "load_state_dict")
        ]
        unused = [name for name, state in states.items() if name not in self.by_name and state]
        if fresh:
            self._warn(f"the checkpoint has no state of {_listed(fresh)}: starting afresh")
        if unused:
            self._warn(
                f"the checkpoint has the state of {_listed(unused)}, "
                "which build_callbacks does not return: ignored"
            )
        for name, callback in self.by_name.items():
            if name in states:
                _call(name, "load_state_dict", callback.load_state_dict, states[name])

    def _run(self, hook: str, *args: Any, **kwargs: Any) -> None:
        for name, call in self._calls[hook]:
            _call(name, hook, call, *args, **kwargs)

    def _run_all(self, hook: str, *args: Any) -> list[Exception]:
        """Run the hook of all callbacks, and return the exceptions."""
        failures = []
        for name, call in self._calls[hook]:
            try:
                _call(name, hook, call, *args)
            except Exception as error:  # the user's code; the caller raises or notes it
                failures.append(error)
        return failures

    def _adapt_older_forms(self) -> None:
        hook = "on_training_epoch_start"
        older = [name for name, call in self._calls[hook] if _takes_no_argument(call)]
        if older:
            self._warn(
                f"{hook} of {_listed(older)}: it is given the epoch's index; add `epoch_idx`"
            )
            self._calls[hook] = [
                (name, (lambda _, call=call: call()) if name in older else call)
                for name, call in self._calls[hook]
            ]
        if aliased := [name for name, _ in self._calls["on_checkpoint_end"]]:
            self._warn(
                f"on_checkpoint_end of {_listed(aliased)}: name it on_checkpoint_write_end",
                FutureWarning,
            )

    def _warn(self, message: str, category: type[Warning] = UserWarning) -> None:
        if self._is_chief:
            warn_user(message, category)


_HOOKS = tuple(name for name in vars(PyTorchCallback) if name.startswith("on_"))


def _overrides(callback: PyTorchCallback, hook: str) -> bool:
    given = getattr(callback, hook)  # an instance may define a hook of its own
    return getattr(given, "__func__", None) is not getattr(PyTorchCallback, hook)


def _check_callbacks(callbacks: Any) -> None:
    where = "build_callbacks"
    if not isinstance(callbacks, Mapping):
        hint = "; does it lack a `return`?" if callbacks is None else ""
        raise TrialMistake(
            where,
            f"{where}: got {callbacks!r}, expected a dict of PyTorchCallbacks by name{hint}",
        )
    problems = []
    for name, callback in callbacks.items():
        if not isinstance(name, str):
            problems.append(f"{where}: got the name {name!r}, expected a string")
        if isinstance(callback, type) and issubclass(callback, PyTorchCallback):
            given = callback.__name__
            problems.append(f"{where}: {name!r} is the class {given}; create one: {given}()")
        elif not isinstance(callback, PyTorchCallback):
            problems.append(f"{where}: {name!r} is {callback!r}, expected a PyTorchCallback")
    if problems:
        raise TrialMistake(where, "\n".join(problems))


def _call(name: str, hook: str, call: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    try:
        call(*args, **kwargs)
    except BaseException as error:  # an exit too: a hook may raise anything
        error.add_note(f"raised in {hook} of the callback {name!r}")
        raise


def _takes_no_argument(call: Callable[..., Any]) -> bool:
    try:
        signature = inspect.signature(call)
    except (TypeError, ValueError):  # in C, without a signature
        return False
    return not signature.parameters


def _describe(failure: BaseException) -> str:
    where = " ".join(getattr(failure, "__notes__", ()))
    return f"{error_text(failure)} ({where})"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))
