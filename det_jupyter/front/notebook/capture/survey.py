"""Survey of a trial before it is packed: the names to send, their sizes, and failures.

Every name is pickled by itself into a counter that stores nothing, and the pickle is cut at each
other name of the notebook, which is pickled by itself in turn:

    DigitsTrial ──► Net, train_set          a size excludes the names that a name uses;
                      │       └──► images   a failure belongs to one name, so that all failures
                      └──► make_layer       are found in one pass

Memory is counted once, for the first name that refers to it. Nothing is written.
"""

from __future__ import annotations

import functools
import pickle
import types
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from det_jupyter.front.notebook.capture.pickling import TrialPickler, is_importable, is_plain_array
from det_jupyter.front.notebook.capture.refusals import (
    CaptureRefusal,
    CaptureRefused,
    qualified_names,
    refusal_for_failure,
    refusal_of,
)

_MAX_CULPRITS = 3  # for each name
_MAX_PARTS = 1000  # most parts of one object
_MAX_DEPTH = 25
_CUT = (str, ("",))  # the reduction of an object that is surveyed by itself


@dataclass(slots=True, kw_only=True)
class Survey:
    """The result: sizes of the names to send, in the order in which they were found."""

    namespace: Mapping[str, Any]
    values: Mapping[str, Any]  # the namespace with the class or function to send
    names: dict[int, str]  # names of the notebook's objects, by identity
    sizes: dict[str, int] = field(default_factory=dict)
    users: dict[str, str] = field(default_factory=dict)  # name -> function that refers to it
    failures: dict[str, BaseException] = field(default_factory=dict)
    devices: dict[str, str] = field(default_factory=dict)  # by name: the device of its tensors
    counted: set[tuple[int, int]] = field(default_factory=set)  # memory: address and size
    functions: list[types.FunctionType] = field(default_factory=list)  # defined in the notebook

    def add(self, name: str, user: str) -> None:
        """Add a name to send."""
        if name not in self.sizes:
            self.sizes[name] = 0
            self.users[name] = user
            self.names.setdefault(id(self.values[name]), name)


def survey_trial(
    entrypoint: str, value: Any, namespace: Mapping[str, Any], ignored: Collection[str]
) -> Survey:
    """Return the survey of a class or function of this name, and all that it needs.

    Args:
        namespace: The notebook's globals.
        ignored: Names in it that are the shell's own.
    """
    values = {**namespace, entrypoint: value}
    names: dict[int, str] = {}
    for name, each in list(namespace.items()):
        if not name.startswith("_") and name not in ignored and _has_identity(each):
            names.setdefault(id(each), name)
    names[id(value)] = entrypoint
    survey = Survey(namespace=namespace, values=values, names=names)
    survey.add(entrypoint, "")
    done = 0
    while queued := list(survey.sizes)[done:]:  # names that are found meanwhile are appended
        for name in queued:
            _survey_name(survey, name, values[name])
        done += len(queued)
    return survey


def _survey_name(survey: Survey, name: str, value: Any) -> None:
    try:
        _SurveyPickler(survey, name).dump(value)
    except Exception as error:  # anything that user code raises while it is pickled
        survey.failures[name] = error
        # The parts after the failure were not pickled: pickle them one by one.
        for _, part in islice(parts_of(value), _MAX_PARTS):
            with suppress(Exception):  # as above
                _SurveyPickler(survey, name).dump(part)


def _has_identity(value: Any) -> bool:
    """Return whether an object that is found elsewhere can be attributed to this name.

    Shared constants (`torch.float32`, the number 1) cannot.
    """
    is_array = "numpy.ndarray" in qualified_names(type(value))
    return (is_array or type(value).__dictoffset__ != 0) and not is_importable(value)


class _Counter:
    """A file that stores only the number of bytes written to it."""

    def __init__(self) -> None:
        self.size = 0

    def write(self, data: bytes) -> int:
        self.size += len(data)
        return len(data)


class _SurveyPickler(TrialPickler):
    """Pickles one name's value to find failures and its size.

    With `name` None it changes no survey: it only tests whether an object can be pickled.
    """

    def __init__(self, survey: Survey, name: str | None) -> None:
        self._counter = _Counter()
        super().__init__(self._counter, survey.namespace, self._count_buffer)
        self._survey = survey
        self._name = name
        self._root: Any = None

    def dump(self, obj: Any) -> None:
        self._root = obj
        super().dump(obj)
        if self._name is not None:
            self._survey.sizes[self._name] += self._counter.size

    def reducer_override(self, obj: Any) -> Any:
        name = self._survey.names.get(id(obj))
        if name is not None and obj is not self._root:
            self._add(name, "")
            return _CUT
        return super().reducer_override(obj)

    def reduce_function(self, function: types.FunctionType) -> Any:
        reduced = super().reduce_function(function)
        if reduced is not NotImplemented and function.__globals__ is self._survey.namespace:
            if self._name is not None:
                self._survey.functions.append(function)
            slots = reduced[2][1]
            for name, value in slots["__globals__"].items():
                if not is_importable(value):
                    self._add(name, function.__qualname__)
            slots["__globals__"] = {}
        return reduced

    def reduce_array(self, array: Any) -> Any:
        if not is_plain_array(array):
            return super().reduce_array(array)
        self._count(array.__array_interface__["data"][0], array.nbytes)
        return _CUT

    def reduce_storage(self, storage: Any) -> Any:
        if storage.device.type != "cpu" and self._name is not None:
            self._survey.devices[self._name] = str(storage.device)
        self._count(storage.data_ptr(), storage.nbytes())
        return _CUT

    def refuse(self, error: CaptureRefused) -> Any:
        if self._name is None:
            return super().refuse(error)
        self._survey.failures.setdefault(self._name, error)
        return _CUT

    def _add(self, name: str, user: str) -> None:
        if self._name is not None:
            self._survey.add(name, user)

    def _count_buffer(self, buffer: pickle.PickleBuffer) -> bool:
        with buffer.raw() as view:
            self._counter.size += view.nbytes
        return False

    def _count(self, address: int, num_bytes: int) -> None:
        if self._name is not None and (address, num_bytes) not in self._survey.counted:
            self._survey.counted.add((address, num_bytes))
            self._survey.sizes[self._name] += num_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Culprit:
    """An object that cannot be sent, with its path from a name of the notebook."""

    path: str
    type_name: str
    refusal: CaptureRefusal


def find_culprits(survey: Survey, name: str) -> list[Culprit]:
    """Return the first few of the innermost objects because of which pickling a name failed."""
    search = _Search(survey)
    search.descend(name, survey.values[name], survey.failures[name], depth=0)
    return search.culprits[:_MAX_CULPRITS]


class _Search:
    def __init__(self, survey: Survey) -> None:
        self._survey = survey
        self._seen: set[int] = set()
        self._kept: list[Any] = []  # otherwise the id of a temporary object could be reused
        self.culprits: list[Culprit] = []

    def descend(self, path: str, value: Any, error: BaseException, depth: int) -> None:
        self._seen.add(id(value))
        self._kept.append(value)
        is_leaf = True
        is_refused = refusal_of(type(value)) is not None
        parts = () if is_refused or depth == _MAX_DEPTH else parts_of(value)
        for step, part in islice(parts, _MAX_PARTS):
            if len(self.culprits) >= _MAX_CULPRITS:
                return
            if id(part) in self._survey.names:
                continue  # surveyed by itself
            if (part_error := self._probe(part)) is not None:
                is_leaf = False
                if id(part) not in self._seen:
                    self.descend(path + step, part, part_error, depth + 1)
        if is_leaf:
            refusal = refusal_for_failure(type(value), error)
            self.culprits.append(
                Culprit(path=path, type_name=type(value).__name__, refusal=refusal)
            )

    def _probe(self, value: Any) -> BaseException | None:
        try:
            _SurveyPickler(self._survey, None).dump(value)
        except Exception as error:  # anything that user code raises while it is pickled
            return error
        return None


def parts_of(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the objects that pickling `value` pickles next, each with its access expression.

    The expression is Python's (`.name`, `['key']`, `[0]`), or empty if there is none.
    """
    match value:
        case dict():
            for key, item in value.items():
                yield f"[{key!r}]", item
        case list() | tuple():
            for index, item in enumerate(value):
                yield f"[{index}]", item
        case set() | frozenset():
            for item in value:
                yield "{...}", item
        case types.FunctionType():
            yield from _parts_of_function(value)
        case types.MethodType():
            yield "", value.__self__
            yield "", value.__func__
        case functools.partial():
            yield ".func", value.func
            yield ".args", value.args
            yield ".keywords", value.keywords
        case staticmethod() | classmethod():
            yield "", value.__func__
        case property():
            for function in (value.fget, value.fset, value.fdel):
                yield "", function
        case type():
            for name, item in list(vars(value).items()):
                if name not in ("__dict__", "__weakref__", "_abc_impl"):
                    yield f".{name}", item
            for base in value.__bases__:
                yield f"<{base.__name__}>", base
        case _:
            yield from _parts_of_object(value)


def _parts_of_function(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            yield f".<locals>.{name}", cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    defaults = function.__defaults__ or ()
    positional = function.__code__.co_varnames[: function.__code__.co_argcount]
    keyword = (function.__kwdefaults__ or {}).items()
    for name, item in (*zip(positional[::-1], defaults[::-1], strict=False), *keyword):
        yield f"({name}=...)", item
    for name, item in vars(function).items():
        yield f".{name}", item


def _parts_of_object(value: Any) -> Iterator[tuple[str, Any]]:
    try:
        reduced = value.__reduce_ex__(5)
    except Exception:  # the object cannot be pickled: it has no parts
        return
    if not isinstance(reduced, tuple):
        return
    _, args, *rest = reduced
    state, items, pairs = (*rest, None, None, None)[:3]
    for part in args:
        if not isinstance(part, type):
            yield "", part
    slots: dict[str, Any] = {}
    if isinstance(state, tuple) and len(state) == 2 and isinstance(state[1], dict):
        state, slots = state
    attributes = (state if isinstance(state, dict) else {}) | slots
    for name, item in attributes.items():
        yield f".{name}", item
    if state is not None and not isinstance(state, dict):
        yield "", state
    for index, item in enumerate(items or ()):
        yield f"[{index}]", item
    for key, item in pairs or ():
        yield f"[{key!r}]", item
