"""What the code of a trial reads and reports, as far as its source shows; nothing is run.

context.get_hparam("lr"), hparams["lr"], hparams.get("drop", 0.1), self.hparams.lr      read
return {"val_loss": ...}, report_validation_metrics(metrics={"val_loss": ...})          reported
"""

from det_jupyter.contract.trial.source.entrypoint import Needs, needs_of
from det_jupyter.contract.trial.source.hparams import UNKNOWN, find_batch_size_reader
from det_jupyter.contract.trial.source.metrics import returned_metrics
from det_jupyter.contract.trial.source.syntax import Function, method_in, method_of

__all__ = [
    "UNKNOWN",
    "Function",
    "Needs",
    "find_batch_size_reader",
    "method_in",
    "method_of",
    "needs_of",
    "returned_metrics",
]
