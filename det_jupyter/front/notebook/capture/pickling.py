"""Pickling of a trial's objects: cloudpickle by value, arrays and tensors out of band.

The notebook's functions share one dict of globals in the stream, which `load_capsule` provides.
Objects that det_jupyter exports are pickled by their public names, so that stored capsules can be
loaded after a module was moved. torch and numpy are not imported: their objects are recognised by
the names of their types.
"""

from __future__ import annotations

import builtins
import ctypes
import functools
import importlib
import io
import pickle
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import cloudpickle

from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.contract.trial.captured import (
    NotebookGlobals,
    fill_cached,
    rebuild_cached,
    rebuild_storage,
    rebuild_tensor,
    rebuild_typed_storage,
)
from det_jupyter.front.notebook.capture.refusals import (
    BY_NAME_ONLY,
    CaptureRefused,
    qualified_names,
    refusal_of,
)

# A smaller buffer stays in the stream: a file and a mapping in each rank would cost more.
_MIN_BLOB_BYTES = 64 * 2**10
_STANDARD_STREAMS = ("stdin", "stdout", "stderr", "__stdin__", "__stdout__", "__stderr__")
_CO_FILENAME = 10  # index among the arguments of types.CodeType
_SKELETONS = {"_make_skeleton_class", "_make_skeleton_enum"}

# Types of objects that may be importable by module and name.
_NAMED = (type, types.FunctionType, types.BuiltinFunctionType, functools._lru_cache_wrapper)

_PUBLIC = ("det_jupyter.pytorch", "det_jupyter.core")

_Reducer = Callable[[Any], Any]


class ByteSink(Protocol):
    """The target of a stream."""

    def write(self, data: bytes, /) -> object:
        """Write the next part of the stream."""


class TrialPickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle is untyped
    """cloudpickle with our reductions; raises CaptureRefused for objects that cannot be sent."""

    def __init__(
        self,
        file: ByteSink,
        namespace: Mapping[str, Any],
        buffer_callback: Callable[[pickle.PickleBuffer], bool] | None = None,
    ) -> None:
        super().__init__(file, protocol=5, buffer_callback=buffer_callback)
        self.globals_ref[id(namespace)] = NotebookGlobals()
        self._namespace = namespace
        self._reducers: dict[type, _Reducer] = {}
        self._special: dict[str, _Reducer] = {
            "builtins.builtin_function_or_method": self.reduce_reference,
            "builtins.code": self.reduce_code,
            "builtins.function": self.reduce_function,
            "builtins.module": self.reduce_reference,
            "builtins.type": self.reduce_class,
            "functools.cached_property": self._reduce_cached_property,
            "functools._lru_cache_wrapper": self._reduce_cached,
            "numpy.ndarray": self.reduce_array,
            "torch.Tensor": self._reduce_tensor,
            "torch.storage.TypedStorage": self._reduce_typed_storage,
            "torch.storage.UntypedStorage": self.reduce_storage,
            "typing.NewType": self._reduce_new_type,
        }

    def reducer_override(self, obj: Any) -> Any:
        """Return the reduction of any object that is not of a built-in data type."""
        type_ = type(obj)
        reduce = self._reducers.get(type_)
        if reduce is None:
            reduce = self._reducers[type_] = self._reducer_of(type_)
        reduced = reduce(obj)
        return _by_public_name(obj) if reduced is NotImplemented else reduced

    def _reducer_of(self, type_: type) -> _Reducer:
        if refusal := refusal_of(type_):
            error = CaptureRefused(refusal)
            return functools.partial(self._reduce_refused, error)
        for name in qualified_names(type_):
            if name in self._special:
                return self._special[name]
        if type_.__module__ == "__main__" or type_ in self.dispatch_table:
            return self._reduce_as_cloudpickle
        return self._reduce_plain

    def _reduce_as_cloudpickle(self, obj: Any) -> Any:
        return super().reducer_override(obj)

    def _reduce_refused(self, error: CaptureRefused, obj: Any) -> Any:
        for name in _STANDARD_STREAMS:
            if obj is getattr(sys, name, None):
                return getattr, (sys, name)  # the rank has its own
        return self.refuse(error)

    def refuse(self, error: CaptureRefused) -> Any:
        """Handle an object that cannot be sent: raise; a subclass may substitute it."""
        raise error

    def _reduce_plain(self, obj: Any) -> Any:
        # An object of a library's type with `__module__ == "__main__"` may be pickled as a name in
        # `__main__`, which ranks do not have.
        claims_main = getattr(obj, "__module__", None) == "__main__"
        if claims_main and isinstance(obj.__reduce_ex__(5), str):
            return self.refuse(CaptureRefused(BY_NAME_ONLY))
        return NotImplemented

    def reduce_reference(self, obj: Any) -> Any:
        """Reduce a module or an importable object."""
        return NotImplemented

    def reduce_code(self, code: types.CodeType) -> Any:
        """Reduce a code object with its file name, by which frames show their cell.

        cloudpickle 3.1.3 replaces the name by `<dynamic-code>`.
        """
        make, arguments = self.dispatch_table[types.CodeType](code)
        named = (*arguments[:_CO_FILENAME], code.co_filename, *arguments[_CO_FILENAME + 1 :])
        return make, named

    def reduce_function(self, function: types.FunctionType) -> Any:
        """Reduce a function; NotImplemented if it is pickled by reference."""
        reduced = super().reducer_override(function)
        if reduced is NotImplemented:
            return self.reduce_reference(function)
        names = reduced[2][1]["__globals__"]
        for name in [name for name, value in names.items() if _is_shell_builtin(name, value)]:
            del names[name]
        return reduced

    def reduce_class(self, class_: type) -> Any:
        """Reduce a class; NotImplemented if it is pickled by reference."""
        reduced = super().reducer_override(class_)
        if isinstance(reduced, tuple) and reduced[0].__name__ in _SKELETONS:
            # Without cloudpickle's tracking id: with it, loading a capsule in the notebook that
            # made it would overwrite the notebook's own class.
            make, args, *rest = reduced
            return (make, (*args[:-2], None, args[-1]), *rest)
        return self.reduce_reference(class_) if reduced is NotImplemented else reduced

    def reduce_array(self, array: Any) -> Any:
        """Reduce a numpy array; numpy pickles contiguous ones out of band."""
        if not is_plain_array(array):
            return NotImplemented
        numpy = sys.modules["numpy"]
        array = numpy.asarray(array)  # a memmap's own reduction would copy the array
        return (array if array.flags.forc else numpy.ascontiguousarray(array)).__reduce_ex__(5)

    def _reduce_tensor(self, tensor: Any) -> Any:
        torch = sys.modules["torch"]
        if (
            type(tensor) is not torch.Tensor
            or tensor.layout is not torch.strided
            or tensor.is_quantized
            or tensor.device.type == "meta"
            or tensor.is_conj()
            or tensor.is_neg()
            or tensor._backward_hooks
            or vars(tensor)
        ):
            return NotImplemented  # torch's own reduction; its memory by reduce_storage
        place = (tensor.storage_offset(), tuple(tensor.shape), tensor.stride())
        return rebuild_tensor, (
            tensor.untyped_storage(),
            tensor.dtype,
            *place,
            tensor.requires_grad,
        )

    def reduce_storage(self, storage: Any) -> Any:
        """Reduce the memory of a torch tensor; views of it share it again when they are loaded."""
        on_cpu = storage if storage.device.type == "cpu" else storage.cpu()
        size = on_cpu.nbytes()
        buffer = (ctypes.c_char * size).from_address(on_cpu.data_ptr() if size else 0)
        buffer.owner = on_cpu  # keeps the copy of a CUDA tensor until it is written
        return rebuild_storage, (pickle.PickleBuffer(buffer),)

    def _reduce_typed_storage(self, storage: Any) -> Any:
        return rebuild_typed_storage, (storage._untyped_storage, storage.dtype)

    def _reduce_cached_property(self, cached: functools.cached_property[Any]) -> Any:
        # Before Python 3.12 it contains a lock, which its constructor creates anew.
        return type(cached), (cached.func,), {"attrname": cached.attrname}

    def _reduce_cached(self, cached: Any) -> Any:
        if is_importable(cached):
            return self.reduce_reference(cached)
        if (function := self.reduce_function(cached.__wrapped__)) is NotImplemented:
            return NotImplemented
        # A recursive function refers to its own wrapper, which must exist before the function
        # gets its state.
        make, args, state, _, _, fill = function
        parameters = cached.cache_parameters()
        return rebuild_cached, (make, args, parameters), (fill, state), None, None, fill_cached

    def _reduce_new_type(self, new_type: Any) -> Any:
        if new_type.__module__ != "__main__":
            return NotImplemented
        return typing.NewType, (new_type.__name__, new_type.__supertype__)


def is_importable(value: Any) -> bool:
    """Return whether ranks can import the value, so that only its name is sent."""
    if isinstance(value, types.ModuleType):
        return True
    if not isinstance(value, _NAMED):
        return False
    try:
        # Imported, as pickle does: the module of `numpy.recarray` is not loaded with numpy.
        module = importlib.import_module(value.__module__ or "builtins")
        found = functools.reduce(getattr, value.__qualname__.split("."), module)
    except Exception:  # an import may raise anything
        return False
    return found is value and module.__name__ != "__main__"


def _by_public_name(obj: Any) -> Any:
    """Return the reduction of an object that a public package of ours exports: by that name."""
    if not isinstance(obj, _NAMED):
        return NotImplemented
    home = obj.__module__
    for package in _PUBLIC:
        if isinstance(home, str) and home.startswith(f"{package}."):
            exporter = importlib.import_module(package)
            if obj.__name__ in exporter.__all__ and getattr(exporter, obj.__name__) is obj:
                return getattr, (exporter, obj.__name__)
    return NotImplemented


def is_plain_array(array: Any) -> bool:
    """Return whether a numpy array is only memory with a shape, so that it is sent out of band."""
    numpy = sys.modules["numpy"]
    is_plain = type(array) is numpy.ndarray or isinstance(array, numpy.memmap)
    return is_plain and not array.dtype.hasobject


def _is_shell_builtin(name: str, value: Any) -> bool:
    """Return whether `value` is IPython's substitute for a builtin (`open`, `exit`, `quit`)."""
    is_function = isinstance(value, types.FunctionType)
    home = value.__globals__.get("__name__") if is_function else type(value).__module__
    return hasattr(builtins, name) and str(home).startswith(("IPython.", "ipykernel."))


class PackPickler(TrialPickler):
    """Stores large buffers as blobs, and collects the code files and modules referred to."""

    def __init__(self, file: ByteSink, namespace: Mapping[str, Any], blobs: BlobStore) -> None:
        super().__init__(file, namespace, self._place_buffer)
        self._blobs = blobs
        self.buffers: list[str] = []
        self.code_files: set[str] = set()
        self.modules: set[str] = set()

    def _place_buffer(self, buffer: pickle.PickleBuffer) -> bool:
        """Store a buffer as a blob, or return True to leave it in the stream."""
        with buffer.raw() as view:
            if view.nbytes < _MIN_BLOB_BYTES:
                return True
            self.buffers.append(self._blobs.put(view))
            return False

    def reduce_code(self, code: types.CodeType) -> Any:
        self.code_files.add(code.co_filename)
        return super().reduce_code(code)

    def reduce_reference(self, obj: Any) -> Any:
        name = obj.__name__ if isinstance(obj, types.ModuleType) else obj.__module__
        if isinstance(name, str):
            self.modules.add(name.partition(".")[0])
        return NotImplemented


def pack(
    value: Any, names: Iterable[str], namespace: Mapping[str, Any], blobs: BlobStore
) -> tuple[bytes, PackPickler]:
    """Pickle a class or function with all names that it needs; return stream and pickler.

    Large buffers are written to `blobs`; the pickler has the lists of buffers and references.
    """
    root = (value, {name: namespace[name] for name in names})
    stream = io.BytesIO()
    pickler = PackPickler(stream, namespace, blobs)
    pickler.dump(root)
    pickler.clear_memo()  # frees the trial's arrays, and copies of some
    return stream.getvalue(), pickler
