"""`python -m det_jupyter.config`: check a file, or print the reference or the JSON Schema."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace

from det_jupyter.config.experiment_config import ExperimentConfig
from det_jupyter.config.merging import merge, origins, take_template
from det_jupyter.config.notices import notices
from det_jupyter.config.parsing import check_sanity, parse_config
from det_jupyter.config.reference_page import json_schema, markdown
from det_jupyter.config.yaml_output import to_yaml
from det_jupyter.config.yaml_text import Sources, YamlDocument, read_yaml, with_lines
from det_jupyter.errors import ConfigError, Problem

_WRONG, _UNREADABLE = 1, 2  # exit statuses


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return its exit status."""
    options = _parser().parse_args(arguments)
    if options.command == "schema":
        print(json.dumps(json_schema(), indent=2))
        return 0
    if options.command == "reference":
        print(markdown(), end="")
        return 0
    try:
        mine = read_yaml(_read(options.file))
        theirs = _read_template(options.file, mine, options.template)
    except OSError as error:
        print(f"{error.strerror}: {error.filename}", file=sys.stderr)
        return _UNREADABLE
    try:
        print(_checked(mine, theirs), end="")
    except ConfigError as error:
        print(error)
        return _WRONG
    return 0


def _read_template(path: str, mine: YamlDocument, given: str | None) -> YamlDocument:
    """Return the template: the given file, else the file that the configuration names."""
    named, problems = take_template(mine.document, given)
    mine.problems.extend(problems)
    if named is None:
        return YamlDocument()
    beside = path[: path.rfind("/") + 1] + named
    for file in (f"{beside}.yaml", f"{beside}.yml", beside) if given is None else (given,):
        with suppress(FileNotFoundError) if given is None else nullcontext():
            if not (text := _read(file)).strip():
                return YamlDocument()
            theirs = read_yaml(text)
            if take_template(theirs.document) != (None, []):
                nested = Problem("template", "a template cannot name another one; remove it")
                theirs.problems.append(nested)
            return theirs
    mine.problems.append(
        Problem(
            "template",
            f"got {named!r}, but there is no file {beside}.yaml; name it with --template FILE",
        )
    )
    return YamlDocument(is_document=False)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m det_jupyter.config", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    check = commands.add_parser("check", help="print the problems of a configuration, or ok")
    check.add_argument("file", metavar="FILE", help="the configuration, in YAML; - for stdin")
    check.add_argument(
        "--template", metavar="FILE", help="its template, in YAML (default: the one that it names)"
    )
    commands.add_parser("schema", help="print the JSON Schema of a configuration")
    commands.add_parser("reference", help="print the reference of all keys, in Markdown")
    return parser


def _read(path: str) -> str:
    if path == "-":
        return sys.stdin.read()
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except UnicodeDecodeError:
        raise OSError(None, "not UTF-8", path) from None


def _checked(mine: YamlDocument, theirs: YamlDocument) -> str:
    """Return "ok", the effective configuration and notices about it.

    Raises:
        ConfigError: All problems with text, template and content, with their lines.
    """
    config, problems = _parsed(mine, theirs)
    of_template = theirs.problems + check_sanity(theirs.document)
    known = with_lines(of_template, theirs.lines)
    if known or problems:
        raise ConfigError(_located(problems, mine, theirs, known))
    assert config is not None, "no configuration, and no problem with it"
    effective = config.to_document()
    merged = merge(theirs.document, mine.document)
    if "experiment_seed" not in (merged.get("reproducibility") or {}):
        del effective["reproducibility"]  # drawn at submission
    remarks = "".join(f"Note: {notice}\n" for notice in notices(merged))
    given = origins(mine.document, theirs.document, effective)
    return f"ok\n{to_yaml(effective, given)}{remarks}"


def _parsed(
    mine: YamlDocument, theirs: YamlDocument
) -> tuple[ExperimentConfig | None, list[Problem]]:
    """Return the merged configuration (None if invalid), and the problems of text and values."""
    if not (mine.is_document and theirs.is_document):  # more may be missing
        return None, mine.problems + check_sanity(mine.document)
    try:
        return parse_config(mine.document, default_seed=0, template=theirs.document), mine.problems
    except ConfigError as error:
        return None, mine.problems + error.problems


def _located(
    problems: Sequence[Problem], mine: YamlDocument, theirs: YamlDocument, known: Sequence[Problem]
) -> list[Problem]:
    """Return the problems with their lines; those of the template come last.

    Args:
        problems: Problems of the configuration, merged over the template.
        known: Problems that the template has by itself, with their lines.
    """
    sources = Sources(
        document=mine.document,
        lines=mine.lines,
        template=theirs.document,
        template_lines=theirs.lines,
    )
    own, inherited = sources.locate(problems)
    paths = {problem.path for problem in known}
    of_template = [*known, *(problem for problem in inherited if problem.path not in paths)]
    return [*own, *(replace(problem, source="template") for problem in of_template)]


if __name__ == "__main__":
    if hasattr(signal, "SIGPIPE"):  # `| head` ends us without a message, like other commands
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.exit(main())
