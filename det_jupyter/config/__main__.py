"""`python -m det_jupyter.config`: check a file, or print what the reference is made of."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from det_jupyter.config.documents import json_schema, markdown
from det_jupyter.config.merging import merge, origins
from det_jupyter.config.notices import notices
from det_jupyter.config.parsing import check_sanity, parse_config
from det_jupyter.config.text import lines_of_paths, parse_yaml, with_lines
from det_jupyter.config.writing import to_yaml
from det_jupyter.errors import ConfigError

_WRONG, _UNREADABLE = 1, 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return its exit status."""
    options = _parser().parse_args(arguments)
    if options.command == "schema":
        print(json.dumps(json_schema(), indent=2))
        return 0
    if options.command == "reference":
        print(markdown(), end="")
        return 0
    return _check(options.file, options.template)


def _check(path: str, template_path: str | None) -> int:
    texts = []
    for name in (path, template_path):
        try:
            texts.append("" if name is None else _read(name))
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not UTF-8"
            print(f"{reason}: {name}", file=sys.stderr)
            return _UNREADABLE
    try:
        print(_checked(*texts), end="")
    except ConfigError as error:
        print("\n".join(error.problems))
        return _WRONG
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m det_jupyter.config", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    check = commands.add_parser("check", help="say what is wrong with a configuration, or ok")
    check.add_argument("file", metavar="FILE", help="the configuration, in YAML; - for stdin")
    check.add_argument("--template", metavar="FILE", help="what it is laid over, in YAML")
    commands.add_parser("schema", help="print the JSON Schema of a configuration")
    commands.add_parser("reference", help="print the reference of all keys, in Markdown")
    return parser


def _read(path: str) -> str:
    if path == "-":
        return sys.stdin.read()
    with open(path, encoding="utf-8") as file:
        return file.read()


def _checked(text: str, template_text: str) -> str:
    """Return what there is to say of a configuration that is right.

    Raises:
        ConfigError: It is not; each problem with its line.
    """
    template = _parsed_template(template_text)
    document = parse_yaml(text)
    try:
        config = parse_config(document, default_seed=0, template=template)
    except ConfigError as error:
        raise ConfigError(_located(error.problems, text, template_text)) from None
    effective = config.to_document()
    merged = merge(template, document)
    if "experiment_seed" not in (merged.get("reproducibility") or {}):
        del effective["reproducibility"]  # drawn when it is submitted
    remarks = "".join(f"Note: {notice}\n" for notice in notices(merged))
    return f"ok\n{to_yaml(effective, origins(document, template, effective))}{remarks}"


def _parsed_template(text: str) -> Mapping[str, Any]:
    if not text.strip():
        return {}
    try:
        template = parse_yaml(text)
    except ConfigError as error:
        raise ConfigError([f"template: {problem}" for problem in error.problems]) from None
    if problems := check_sanity(template):
        raise ConfigError([f"template: {problem}" for problem in with_lines(problems, text)])
    return template


def _located(problems: Sequence[str], text: str, template_text: str) -> list[str]:
    """Name the line of each problem; those of the template come last."""
    mine, theirs = lines_of_paths(text), lines_of_paths(template_text)
    borrowed = [
        problem
        for problem in problems
        if (path := problem.partition(":")[0]) in theirs and path not in mine
    ]
    own = [problem for problem in problems if problem not in borrowed]
    return [
        *with_lines(own, text),
        *(f"template: {problem}" for problem in with_lines(borrowed, template_text)),
    ]


if __name__ == "__main__":
    if hasattr(signal, "SIGPIPE"):  # `| head` ends us without a word, as it does other commands
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.exit(main())
