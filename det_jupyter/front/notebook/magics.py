"""`%det_experiment`, `%det` and `%det_script`, as line and as cell magics."""

from __future__ import annotations

import keyword
import re
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError as LineError  # printed as one line, without an output
from IPython.core.magic import Magics, line_cell_magic, magics_class

from det_jupyter.errors import NotFound, UsageError

if TYPE_CHECKING:  # loaded in the background after `%load_ext`; see extension.py
    from det_jupyter.front.verbs.grammar import LineParser

# Options in a line that cannot be parsed.
_VARIABLE = re.compile(r"--var[= ]+(\w+)")
_SUBMITS_NOTHING = re.compile(r"--(dry-run|preview|estimate|local)\b")


@magics_class
class DetMagics(Magics):
    """The magics of det_jupyter."""

    @line_cell_magic
    def det_experiment(self, line: str, cell: str | None = None) -> Any:
        """Submit an experiment (cell magic), or see and steer experiments (line magic).

        `%det_experiment --help` and, as a cell magic, `%%det_experiment --help` list the options.
        """
        __tracebackhide__ = True  # `--local` runs the user's code
        from det_jupyter.front.notebook.complete.magic_parsers import CELL_VERBS, line_parser
        from det_jupyter.front.verbs.grammar import HelpShown

        try:
            if cell is None or line.split()[:1] in [[verb] for verb in CELL_VERBS]:
                return run_line(line_parser(), line, cell)
            return self._submit(line, cell)
        except HelpShown:
            return None
        except UsageError as error:
            raise LineError(str(error)) from None

    @line_cell_magic
    def det(self, line: str, cell: str | None = None) -> Any:
        """See slots and queues (`%det slots`), store templates (`%%det template set NAME`).

        `%det --help` lists all that it can do.
        """
        from det_jupyter.front.notebook.complete.magic_parsers import det_parser

        try:
            return run_line(det_parser(), line if line.strip() else "--help", cell)
        except UsageError as error:
            raise LineError(str(error)) from None

    @line_cell_magic
    def det_script(self, line: str, cell: str | None = None) -> None:
        """Store a cell as a file of the context directory; as a line magic, list such files.

        `%%det_script train.py` above the code, then `entrypoint: python3 train.py`, or
        `entrypoint: train:main`, in the YAML of `%%det_experiment`. The file is written nowhere
        else.
        """
        from det_jupyter.front.notebook.submit.contexts import list_scripts, store_script

        if cell is None and line.strip():
            raise LineError(f"%det_script lists scripts; %%det_script {line.strip()} makes one")
        if cell is None:
            print(list_scripts())
            return
        assert self.shell is not None, "magics are registered by a shell"
        try:
            print(store_script(line, cell, f"In [{self.shell.execution_count}]"))
        except UsageError as error:
            raise LineError(str(error)) from None

    def _submit(self, line: str, cell: str) -> Any:
        __tracebackhide__ = True
        from det_jupyter.front.notebook.complete.magic_parsers import cell_parser
        from det_jupyter.front.verbs.grammar import parse

        try:
            options = parse(cell_parser(), line)
            if not options.var.isidentifier() or keyword.iskeyword(options.var):
                raise UsageError(f"%%det_experiment: --var: got {options.var!r}, expected a name")
        except UsageError as error:
            if not _SUBMITS_NOTHING.search(line):
                named = _VARIABLE.search(line)
                self._refuse(named[1] if named else "experiment", error)
            raise
        if options.local:
            from det_jupyter.front.notebook.submit.preview_and_local import run_local

            return run_local(cell, options, self.shell)
        if options.preview or options.estimate:
            from det_jupyter.front.notebook.submit.preview_and_local import preview_cell

            return preview_cell(cell, options, self.shell)
        from det_jupyter.front.notebook.submit.submitting import dry_run, submit_cell

        shell = self.shell
        assert shell is not None, "magics are registered by a shell"
        if options.dry_run:
            return dry_run(cell, options, shell)
        try:
            experiment = submit_cell(cell, options, shell)
        except BaseException as error:  # an interrupt, too
            self._refuse(options.var, error)
            raise
        shell.user_ns[options.var] = experiment
        if options.wait:
            experiment.show()
            experiment.wait()
            return None
        return experiment

    def _refuse(self, name: str, error: BaseException) -> None:
        """Set the variable `name` to an object that raises the refusal on any use.

        Its former value, a handle on an older experiment, could be mistaken for the new one.
        """
        assert self.shell is not None, "magics are registered by a shell"
        self.shell.user_ns[name] = RefusedExperiment(str(error) or type(error).__name__)


class RefusedExperiment:
    """The value of the handle's variable after a refusal: any use raises the reason."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # front ends look for _repr_html_ and the like
            raise AttributeError(name)
        raise NotFound(
            f"there is no experiment, because the cell that was to submit it was refused: "
            f"{self._reason}"
        )

    def __repr__(self) -> str:
        return f"No experiment: the cell that was to submit it was refused: {self._reason}"


def run_line(parser: LineParser, line: str, cell: str | None = None) -> Any:
    """Carry out a line of verbs, with the cell below it; print text, return a handle.

    Raises:
        UsageError: The line is wrong.
        DetError: The verb is refused.
    """
    from det_jupyter.client.submitting.drafts import below_magic
    from det_jupyter.front.notebook.handles import connection, experiment_handles
    from det_jupyter.front.verbs.experiment_list import with_existing
    from det_jupyter.front.verbs.grammar import Call, HelpShown, parse

    try:
        options = parse(parser, line)
    except HelpShown:
        return None
    if cell is not None and not options.verb.takes_text:
        raise UsageError(f"%{options.words}: takes no cell; write {parser.prog}")
    client = connection.client()
    text = None if cell is None else below_magic(cell)
    call = Call(
        options=options, client=client, experiment=experiment_handles.experiment, text=text
    )
    try:
        answer = options.verb.run(call)
    except NotFound as error:
        raise with_existing(error, client, call.reader) from None
    if not isinstance(answer, str):
        return answer
    print(answer)
    return None
