"""Converts the calls of a loop, marked by hooks, to the parts that they begin. Pure.

    call                                          the part that begins
    next() of a DataLoader                        dataloader_next, until it returns: rest
    the first module called after that            forward, with all until `backward`
    backward                                      backward; at the end of DDP's: exchange; rest
    step() of an optimizer                        optimizer; then the batch ends: rest

A batch is a step of the optimizer, with all data whose gradients it uses. If several optimizers
step one after the other, the last one ends the batch: it ends when one of them steps again.

    no backward pass since the first next() of a DataLoader's iterator, but calls of modules (or
      the training shows none: compiled functions make them),
      and three batches of it, or its end, or one that a module in eval mode has got without
      gradients before another iterator is used                                       validation
    a module that is trained, in eval mode and without gradients,
      and no DataLoader                                       validation, until the next `backward`
    no module seen before `backward` (a compiled function has called it),
      or first a loss, computed of what has gradients                       forward, from next() on

Calls are read once a second, long after they were made, so nothing has to be predicted: the parts
of marks that turn out to be of a validation are replaced.
"""

from __future__ import annotations

from det_jupyter.core.timings.intervals import CODES, END

_REST, _NEXT, _FORWARD = CODES["rest"], CODES["dataloader_next"], CODES["forward"]
_BACKWARD, _OPTIMIZER = CODES["backward"], CODES["optimizer"]
_VALIDATION = CODES["validation"]
# Batches without a backward pass after which an iterator is of a validation; trainers fetch one or
# two ahead.
_SURE = 3
_NOWHERE = -1

# Codes of calls, beside those of parts. A negative one: the optimizer of this id has stepped.
ASKED = END + 1  # for data: the iterator of the last next()
ASKED_OTHER = END + 2  # another one
GOT = END + 3  # data
GOT_END = END + 4  # there are no more
CALLED = END + 5  # a module, with gradients or in training mode
CALLED_LATE = END + 6  # with an input that has gradients: it is not the first module
EVALUATED = END + 7  # a module, in eval mode and without gradients
EVALUATED_OWN = END + 8  # the one that is trained
BEGAN_BACKWARD = END + 9
ENDED_BACKWARD = END + 10
BEGAN_STEP = END + 11
RESUMED_BACKWARD = END + 12  # an optimizer has stepped within the backward pass
ENDED_BATCH = END + 13  # the loop has called `profiler.step()`


class LoopCalls:
    """Reads the calls of one loop.

    Args:
        has_own_batches: Whether the loop ends batches by `profiler.step()`; then steps of
            optimizers end none.

    Attributes:
        part: The part that is running after the last call that was read.
        is_validating: Whether that is within a validation.
        closer: The optimizer whose step ends a batch: its id, negative; 0 if not known yet.
    """

    __slots__ = (
        "_begun_at",
        "_closers",
        "_data_at",
        "_end_at",
        "_has_data",
        "_has_own_batches",
        "_is_called",
        "_is_evaluated",
        "_is_late",
        "_is_seen",
        "_is_stepping",
        "_num_next",
        "_num_read",
        "_outer",
        "_renamed",
        "closer",
        "is_validating",
        "part",
    )

    def __init__(self, *, has_own_batches: bool = False) -> None:
        self._has_own_batches = has_own_batches
        self.part = _REST
        self.is_validating = False
        self._is_stepping = False
        self._outer = _REST  # the part in which the optimizer steps
        self._closers: set[int] = set()  # optimizers that stepped in the batch that ends
        self.closer = 0
        self._has_data = False  # the batch has data of a DataLoader
        self._is_called = False  # a module was called since the last backward pass
        self._is_late = False  # the first module seen got what an unseen one had computed
        self._is_seen = False  # calls of modules are seen in the training
        self._is_evaluated = False  # a module in eval mode was called without gradients meanwhile
        self.forget(0)

    def forget(self, num: int) -> None:
        """Forget the first `num` codes, which cannot be replaced any more."""
        self._num_read = num
        self._end_at = _NOWHERE  # index of the code that ends the last batch
        self._data_at = _NOWHERE  # index of the code after the last next()
        self._begun_at = _NOWHERE  # index of the first next() since the last backward pass
        self._num_next = 0  # calls of next() of that iterator since then
        self._renamed: list[int] = []  # those codes, before validation codes replaced them

    def read(self, codes: list[int]) -> None:
        """Replace the calls since the last `read` by the parts that begin there, in place."""
        calls = list(codes)
        index = batch = self._num_read
        before = None  # the state where the batch begins, if all of it is read
        while index < len(codes):
            code = codes[index] = self._part_of(codes[index], index, codes)
            index += 1
            if code == END:
                state = self._state()
                if state is not None and state == before:
                    index = self._repeat(calls[batch:index], codes, index)
                batch, before = index, state
        self._num_read = index

    def _state(self) -> tuple[int, ...] | None:
        """Return the state that determines the parts of the next batch.

        None if the next calls may change parts that were read before. If a batch does not change
        the state, an equal batch after it has the same parts.
        """
        if self._num_next or self._data_at != _NOWHERE or len(self._closers) > 1:
            return None
        return (
            *self._closers, self.closer, self._has_data, self.is_validating, self._is_called,
            self._is_evaluated, self._is_late, self._is_seen, self._is_stepping, self._outer,
        )  # fmt: skip

    def _repeat(self, calls: list[int], codes: list[int], index: int) -> int:
        """Replace the calls of the batches from `index` on that equal the last one by its parts.

        Args:
            calls: The calls of the last batch.

        Returns:
            The index at which the first different batch begins.
        """
        num = len(calls)
        parts = codes[index - num : index]
        while codes[index : index + num] == calls:
            codes[index : index + num] = parts
            index += num
        self._end_at = index - 1
        return index

    def _part_of(self, code: int, index: int, codes: list[int]) -> int:
        """Return the part that a call begins."""
        if code < 0:
            return self._end_step(code, index, codes)
        if code <= END:  # a part already: an exchange
            return code
        if code <= ASKED_OTHER:
            self._ask(code == ASKED_OTHER, index, codes)
        elif code <= GOT_END:
            self._get(code == GOT_END, index, codes)
        elif code <= EVALUATED_OWN:
            self._call(code, codes)
        elif code == BEGAN_BACKWARD:
            self._begin_backward(codes)
        elif code == ENDED_BACKWARD:
            self.part = _OPTIMIZER if self._is_stepping else _REST
        elif code == BEGAN_STEP:
            self._begin_step()
        elif code == RESUMED_BACKWARD:
            self.part = _BACKWARD
        else:
            return self._end_batch(index)
        return self.part

    def _ask(self, is_other: bool, index: int, codes: list[int]) -> None:
        if is_other:
            if self._is_evaluated and self._num_next and not self.is_validating:
                self._rename(index, codes)
            self.is_validating = self._is_evaluated = self._is_called = False
            self._num_next, self._renamed = 0, []
        elif self._num_next >= _SURE and self._is_read_only():
            self._rename(index, codes)
        if not self.is_validating:
            if not self._num_next:
                self._begun_at = index
            self._num_next += 1
            self.part = _NEXT

    def _get(self, is_over: bool, index: int, codes: list[int]) -> None:
        if is_over and self._num_next > 1 and self._is_read_only():
            self._rename(index, codes)
        if not self.is_validating or is_over:
            self._has_data = self._has_data or not self.is_validating
            self._data_at = index
            self.part = _REST

    def _is_read_only(self) -> bool:
        """Return whether the data since the last backward pass are of a validation.

        Trainers that accumulate gradients may fetch all batches of a step before the first call.
        """
        return not self.is_validating and (self._is_called or not self._is_seen)

    def _rename(self, end: int, codes: list[int]) -> None:
        """Replace the parts since the last backward pass: their data are those of a validation."""
        self.is_validating = True
        self.part = _VALIDATION
        if self._begun_at != _NOWHERE:
            self._renamed = codes[self._begun_at : end]
            codes[self._begun_at : end] = [_VALIDATION] * len(self._renamed)

    def _call(self, code: int, codes: list[int]) -> None:
        self._is_called = True
        if self.part not in (_REST, _VALIDATION, _OPTIMIZER):
            return
        self._is_late = code == CALLED_LATE
        if self._is_late:
            self._begin_forward(codes)
        self.part = _FORWARD
        if code >= EVALUATED:
            self._is_evaluated = True
            if self.is_validating or (code == EVALUATED_OWN and not self._has_data):
                self.part = _VALIDATION

    def _begin_backward(self, codes: list[int]) -> None:
        if self._num_next:
            self._is_seen = self.part == _FORWARD and not self._is_late
        if self._renamed:  # it is no validation
            codes[self._begun_at : self._begun_at + len(self._renamed)] = self._renamed
        elif self.part in (_REST, _OPTIMIZER):
            self._begin_forward(codes)
        self._num_next, self._renamed, self._data_at = 0, [], _NOWHERE
        self._is_evaluated = self.is_validating = self._is_called = False
        self.part = _BACKWARD

    def _begin_forward(self, codes: list[int]) -> None:
        """Let a forward pass that no hook has seen begin where its data arrived."""
        if self._data_at != _NOWHERE and not self._renamed:
            codes[self._data_at] = _FORWARD

    def _begin_step(self) -> None:
        self._is_stepping = True
        if self.part != _OPTIMIZER:
            self._outer = self.part if self.part == _BACKWARD else _REST
            self.part = _OPTIMIZER

    def _end_step(self, optimizer: int, index: int, codes: list[int]) -> int:
        """End the batch, unless another optimizer steps for it too; return the next part."""
        self._is_stepping = False
        if self._has_own_batches:
            self.part = self._outer
            return self.part
        if optimizer in self._closers or not self._closers:
            if self._closers == {optimizer}:
                self.closer = optimizer
            self._closers = {optimizer}
        else:  # another one, for the same batch
            self._closers.add(optimizer)
            self.closer = optimizer
            if self._end_at != _NOWHERE:
                codes[self._end_at] = _REST
        return self._end_batch(index)

    def _end_batch(self, index: int) -> int:
        self._end_at = index
        self.part = _REST
        self._has_data = False
        return END
