"""Hooks into training, for code that is not part of a trial class.

    on_trial_startup > on_checkpoint_load_start > on_training_start
    per batch        on_training_epoch_start (first of an epoch), on_training_batch_start,
                     `train_batch`, schedulers, on_training_batch_end,
                     on_training_epoch_end (last of an epoch)
    at a boundary    on_training_workload_end
                     on_validation_start > on_validation_epoch_start
                         > on_validation_batch_end per batch > on_validation_epoch_end
                         > on_validation_end
                     on_checkpoint_save_start; and when it is written, before a validation
                         or a few batches later, on_checkpoint_write_end
                         > on_checkpoint_upload_end
    leaving early    on_interrupt, and then the checkpoint that saves the run
    after an error   on_exception
    on_trial_shutdown

Callbacks run in the order of the trial's dict, `on_trial_shutdown` in the reverse one, as contexts
end. Knows nothing of the loop that calls it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Concatenate, ParamSpec

from det_jupyter.pytorch.messages import TrialMistake, warn_user
from det_jupyter.words import error_text


class PyTorchCallback:
    """Override what you need. Every hook runs on every rank unless it says otherwise.

    If the callback has state that matters after a pause, override `state_dict` and
    `load_state_dict` as well: the state is kept in checkpoints under the callback's name.
    """

    def on_trial_startup(self, first_batch_idx: int, checkpoint_uuid: str | None) -> None:
        """Run before anything is loaded; `first_batch_idx` is where training begins or goes on."""

    def on_trial_shutdown(self) -> None:
        """Run at the very end, also after an error."""

    def on_training_start(self) -> None:
        """Run once state is restored, before the first batch."""

    def on_training_epoch_start(self, epoch_idx: int) -> None:
        """Run before the first batch of an epoch."""

    def on_training_epoch_end(self, epoch_idx: int) -> None:
        """Run after the last batch of an epoch."""

    def on_training_batch_start(self, batch: Any, epoch_idx: int, batch_idx: int) -> None:
        """Run before `train_batch`, with what it will be given: this rank's, on the device."""

    def on_training_batch_end(
        self, metrics: Mapping[str, Any], epoch_idx: int, batch_idx: int
    ) -> None:
        """Run after a batch and its steps, with what `train_batch` returned on this rank.

        Tensors are still on the device: to read one (`.item()`, `float`, `print`) waits for it.
        """

    def on_training_workload_end(
        self, avg_metrics: Mapping[str, Any], batch_metrics: Sequence[Mapping[str, Any]]
    ) -> None:
        """Run when training metrics are reported, with their averages and each batch's."""

    def on_validation_start(self) -> None:
        """Run before a validation."""

    def on_validation_epoch_start(self) -> None:
        """Run before the first batch of a validation."""

    def on_validation_batch_end(self, outputs: Mapping[str, Any], batch_idx: int) -> None:
        """Run after each `evaluate_batch`, with what it returned on this rank.

        Ranks may have unequal numbers of batches, so nothing collective belongs here.
        """

    def on_validation_epoch_end(self, outputs: Sequence[Any]) -> None:
        """Run after the last batch of a validation, with what each `evaluate_batch` returned."""

    def on_validation_end(self, metrics: Mapping[str, Any]) -> None:
        """Run after a validation, with its metrics over all ranks."""

    def on_checkpoint_load_start(self, checkpoint: dict[str, Any]) -> None:
        """Run before a checkpoint's state is restored; the dict may be changed."""

    def on_checkpoint_save_start(self, checkpoint: dict[str, Any]) -> None:
        """Run before a checkpoint is written; the dict may be added to."""

    def on_checkpoint_write_end(self, checkpoint_dir: Path) -> None:
        """Run on the chief, when the files are written and before they become a checkpoint."""

    def on_checkpoint_end(self, checkpoint_dir: Path) -> None:
        """Run after `on_checkpoint_write_end`, which is its newer name."""

    def on_checkpoint_upload_end(self, uuid: str) -> None:
        """Run when the checkpoint is complete on storage."""

    def on_interrupt(self) -> None:
        """Run when the run leaves before its end, before the checkpoint that saves it.

        It was paused, preempted, or interrupted from the keyboard.
        """

    def on_exception(self, exception: BaseException) -> None:
        """Run when an exception ends training on this rank; the other ranks may know of none."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state to keep in checkpoints: numbers, strings, tensors, lists, dicts."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take back what `state_dict` returned."""


Given = ParamSpec("Given")


def _of_all(
    hook: Callable[Concatenate[PyTorchCallback, Given], None],
) -> Callable[Concatenate[Callbacks, Given], None]:
    """Return the method of Callbacks that runs this hook of all of them."""
    name = hook.__name__

    def run(self: Callbacks, /, *args: Given.args, **kwargs: Given.kwargs) -> None:
        self._run(name, *args, **kwargs)

    return run


class Callbacks:
    """The callbacks of a trial. A hook that none of them overrides costs next to nothing.

    What a hook raises gets a note that names the callback and the hook.

    Args:
        callbacks: What the trial's `build_callbacks` returned.
        is_chief: Whether this rank warns, for all of them.

    Raises:
        ConfigError: It is no dict of callbacks by name.
    """

    def __init__(self, callbacks: Mapping[str, PyTorchCallback], *, is_chief: bool = True) -> None:
        _check(callbacks)
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
        self._adapt_older_forms()
        for hook in ("on_training_batch_start", "on_training_batch_end"):
            if not self._calls[hook]:
                setattr(self, hook, _do_nothing)  # 60 ns in place of 400, twice a batch

    @property
    def keep_state(self) -> bool:
        """Whether any of them has a state to be saved."""
        return any(_overrides(callback, "state_dict") for callback in self.by_name.values())

    def overrides(self, hook: str) -> bool:
        """Return whether a callback overrides the hook, so that its arguments are worth making."""
        return bool(self._calls[hook])

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Run `on_exception` when the body raises, and `on_trial_shutdown` in any case.

        The body's exception is the one that counts: what a hook raises after it becomes a note.
        """
        try:
            yield
        except BaseException as error:
            for failure in (*self._run_all("on_exception", error), *self._shut_down()):
                error.add_note(f"and then {_told(failure)}")
            raise
        self.on_trial_shutdown()

    on_trial_startup = _of_all(PyTorchCallback.on_trial_startup)
    on_training_start = _of_all(PyTorchCallback.on_training_start)
    on_training_epoch_start = _of_all(PyTorchCallback.on_training_epoch_start)
    on_training_epoch_end = _of_all(PyTorchCallback.on_training_epoch_end)
    on_training_batch_start = _of_all(PyTorchCallback.on_training_batch_start)
    on_training_batch_end = _of_all(PyTorchCallback.on_training_batch_end)
    on_training_workload_end = _of_all(PyTorchCallback.on_training_workload_end)
    on_validation_start = _of_all(PyTorchCallback.on_validation_start)
    on_validation_epoch_start = _of_all(PyTorchCallback.on_validation_epoch_start)
    on_validation_batch_end = _of_all(PyTorchCallback.on_validation_batch_end)
    on_validation_epoch_end = _of_all(PyTorchCallback.on_validation_epoch_end)
    on_validation_end = _of_all(PyTorchCallback.on_validation_end)
    on_checkpoint_load_start = _of_all(PyTorchCallback.on_checkpoint_load_start)
    on_checkpoint_save_start = _of_all(PyTorchCallback.on_checkpoint_save_start)
    on_checkpoint_upload_end = _of_all(PyTorchCallback.on_checkpoint_upload_end)
    on_interrupt = _of_all(PyTorchCallback.on_interrupt)

    def on_checkpoint_write_end(self, checkpoint_dir: Path) -> None:
        """Run the hook of all, under both of its names. On the chief."""
        self._run("on_checkpoint_write_end", checkpoint_dir)
        self._run("on_checkpoint_end", checkpoint_dir)

    def on_trial_shutdown(self) -> None:
        """Run the hook of all, last one first, and raise the first error when all have run."""
        failures = self._shut_down()
        for failure in failures[1:]:
            failures[0].add_note(f"and then {_told(failure)}")
        if failures:
            raise failures[0]

    def state_dict(self) -> dict[str, dict[str, Any]]:
        """Return the states of all, by name."""
        return {name: callback.state_dict() for name, callback in self.by_name.items()}

    def load_state_dict(self, states: Mapping[str, dict[str, Any]]) -> None:
        """Give each its state. Warns of those without one, and of states that nobody takes."""
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

    def _run_all(self, hook: str, *args: Any, is_reversed: bool = False) -> list[Exception]:
        """Run the hook of all, whatever it raises, and return that."""
        failures = []
        calls = self._calls[hook]
        for name, call in reversed(calls) if is_reversed else calls:
            try:
                _call(name, hook, call, *args)
            except Exception as error:  # the user's code; raised or told by who called
                failures.append(error)
        return failures

    def _shut_down(self) -> list[Exception]:
        return self._run_all("on_trial_shutdown", is_reversed=True)

    def _adapt_older_forms(self) -> None:
        hook = "on_training_epoch_start"
        older = [name for name, call in self._calls[hook] if _takes_nothing(call)]
        if older:
            self._warn(
                f"{hook} of {_listed(older)}: it is given the epoch's index; add `epoch_idx`"
            )
            self._calls[hook] = [
                (name, _without_arguments(call) if name in older else call)
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


def _do_nothing(*args: Any) -> None:
    pass


def _overrides(callback: PyTorchCallback, hook: str) -> bool:
    given = getattr(callback, hook)  # of the instance: it may have been set there
    return getattr(given, "__func__", None) is not getattr(PyTorchCallback, hook)


def _check(callbacks: Any) -> None:
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
    except BaseException as error:
        error.add_note(f"raised in {hook} of the callback {name!r}")
        raise


def _takes_nothing(call: Callable[..., Any]) -> bool:
    try:
        signature = inspect.signature(call)
    except (TypeError, ValueError):  # a callable of C, which tells nothing
        return False
    return not signature.parameters


def _without_arguments(call: Callable[[], Any]) -> Callable[..., Any]:
    return lambda *_: call()


def _told(failure: BaseException) -> str:
    where = " ".join(getattr(failure, "__notes__", ()))
    return f"{error_text(failure)} ({where})"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))
