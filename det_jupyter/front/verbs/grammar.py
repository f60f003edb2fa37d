"""Verbs and groups of verbs as values, and the parsers made from them.

The notebook and the shell each make their parsers from the same groups. A verb's `run` is called
with a `Call`, and returns text to print or a handle to display. Errors of a line are raised:
parsing never exits the process.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

from det_jupyter.contract.values.reader import NOTEBOOK, SHELL, Reader
from det_jupyter.errors import ConfigError, UsageError

if TYPE_CHECKING:  # not imported to parse a line: `det` in a shell must start quickly
    from det_jupyter.client import Client, Comparison, Diagnosis, Experiment


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One parsed line, with the objects of the front end that a verb needs.

    Args:
        options: The arguments, by name.
        client: Sends requests to the master.
        experiment: Returns the front end's handle on an experiment, by id.
        text: The cell below the line, with an empty line for the line itself.
        reader: The front end that the line was typed in, notebook or shell.
    """

    options: argparse.Namespace
    client: Client
    experiment: Callable[[int], Experiment]
    text: str | None = None
    reader: Reader = NOTEBOOK

    @property
    def is_shell(self) -> bool:
        """Whether the line was typed in a shell, where output may be piped to programs."""
        return self.reader is SHELL


class Lazy:
    """A function by its dotted path, imported when it is called.

    An attribute extends the path: `Lazy("det_jupyter.front.verbs").log_printing.show_logs`.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    def __getattr__(self, name: str) -> Lazy:
        return Lazy(f"{self._path}.{name}")

    def resolve(self) -> Callable[[Call], Any]:
        """Import and return the function."""
        module, _, name = self._path.rpartition(".")
        run: Callable[[Call], Any] = getattr(import_module(module), name)
        return run

    def __call__(self, call: Call) -> Any:
        return self.resolve()(call)


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument, as `argparse.ArgumentParser.add_argument` takes it."""

    names: tuple[str, ...]
    rules: dict[str, Any]


@dataclass(frozen=True, slots=True)
class OneOf:
    """Mutually exclusive arguments."""

    arguments: tuple[Argument, ...]
    required: bool = False


@dataclass(frozen=True, slots=True)
class Verb:
    """A command such as `list` or `pause`.

    Args:
        name: The word that is typed.
        help: What it does, in a few words.
        run: Carries it out; returns text to print, or a handle to display.
        arguments: The arguments after the word.
        aliases: Other words for it.
        takes_text: Whether YAML may follow below the line.
        starts_master: Whether a shell starts the master for it if none runs.
    """

    name: str
    help: str
    run: Callable[[Call], str | Experiment | Comparison | Diagnosis]
    arguments: tuple[Argument | OneOf, ...] = ()
    aliases: tuple[str, ...] = ()
    takes_text: bool = False
    starts_master: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class VerbGroup:
    """Verbs, and groups of verbs, under one word.

    Args:
        name: The word.
        help: What its verbs are about.
        members: The verbs and groups.
        aliases: Other words for it.
        default: The verb that is inserted if a line has none; the verb "" also before a number.
        examples: The end of the help text, for an outermost group.
        metavar: The name of a member in help texts.
        absent: Determined's verbs that are missing here, and what to use instead
            (`Reader.fill` completes the text).
    """

    name: str
    help: str
    members: tuple[Verb | VerbGroup, ...]
    aliases: tuple[str, ...] = ()
    default: str | None = None
    examples: str = ""
    metavar: str = "VERB"
    absent: Mapping[str, str] = field(default_factory=dict)


def argument(*names: str, **rules: Any) -> Argument:
    """Return an argument; takes what `add_argument` of argparse takes."""
    return Argument(names, rules)


def flag(*names: str, help: str) -> Argument:
    """Return an option without a value."""
    return argument(*names, action="store_true", help=help)


def one_of(*arguments: Argument, required: bool = False) -> OneOf:
    """Return mutually exclusive arguments."""
    return OneOf(arguments, required)


_LIKE = 0.65  # of get_close_matches, whose own 0.6 finds `cluster` in `lst`


class HelpShown(Exception):
    """Raised after the help that a line requested was printed."""


class LineParser(argparse.ArgumentParser):
    """An argparse parser that raises one-line UsageErrors instead of exiting.

    `default_verb` and `absent` are those of the VerbGroup; `reader` is the front end of the lines.
    """

    reader: Reader = SHELL

    default_verb: str | None = None
    absent: Mapping[str, str] = {}

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {message} (see {self.prog} --help)")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        raise HelpShown

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        if value in self.absent:
            instead = self.reader.fill(self.absent[value])
            raise UsageError(f"there is no `{self.prog} {value}`: {instead}")
        verbs = verb_parsers(self) if isinstance(action, argparse._SubParsersAction) else {}
        hint = _meant(str(value), [str(choice) for choice in action.choices if choice], verbs)
        raise argparse.ArgumentError(action, f"invalid choice: {value!r}; {hint}")


def _meant(value: str, known: Sequence[str], verbs: Mapping[str, argparse.ArgumentParser]) -> str:
    """Return what a wrong word may have meant: a word, a verb of a group, or one of all words."""
    below: dict[str, str] = {}
    for group in verbs.values():
        for word, verb in verb_parsers(group).items():
            below.setdefault(word, verb.prog)
    near = get_close_matches(value, known, n=1, cutoff=_LIKE)
    if near and value not in below:
        return f"did you mean {near[0]}?"
    if near := get_close_matches(value, below, n=1, cutoff=_LIKE):
        return f"did you mean `{below[near[0]]}`?"
    # The names of verbs, without their aliases.
    names = [word for word in known if word not in verbs or verbs[word].prog.endswith(f" {word}")]
    return f"expected {', '.join(names)}"


@contextmanager
def usage_errors(options: argparse.Namespace) -> Iterator[None]:
    """Convert a ConfigError of the block to a UsageError that begins with the typed verb."""
    try:
        yield
    except ConfigError as error:
        raise UsageError(f"{options.words}: {error}") from None


def make_parser(group: VerbGroup, kind: type[LineParser] = LineParser) -> LineParser:
    """Return a parser, of class `kind`, for lines that begin with the group's name."""
    parser = kind(
        prog=group.name,
        description=group.help,
        epilog=group.examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_members(parser, group)
    return parser


def _add_members(parser: LineParser, group: VerbGroup) -> None:
    parser.default_verb, parser.absent = group.default, group.absent
    words = parser.add_subparsers(metavar=group.metavar, required=True)
    for member in group.members:
        listed: dict[str, Any] = {"help": member.help} if member.name else {}
        inner = words.add_parser(
            member.name,
            aliases=list(member.aliases),
            description=f"{member.help[0].upper()}{member.help[1:]}.",
            **listed,
        )
        inner.prog = inner.prog.strip()
        if isinstance(member, VerbGroup):
            _add_members(inner, member)
        else:
            add_arguments(inner, member.arguments)
            inner.set_defaults(verb=member, words=inner.prog)
            if not member.name:
                parser.epilog = f"or {inner.format_usage().removeprefix('usage: ')}"


def add_arguments(parser: argparse.ArgumentParser, arguments: Sequence[Argument | OneOf]) -> None:
    """Add arguments to a parser."""
    for each in arguments:
        if isinstance(each, Argument):
            parser.add_argument(*each.names, **each.rules)
            continue
        group = parser.add_mutually_exclusive_group(required=each.required)
        for one in each.arguments:
            group.add_argument(*one.names, **one.rules)


def parse(parser: argparse.ArgumentParser, line: str) -> argparse.Namespace:
    """Parse a line; the parser's own name is not part of it.

    Raises:
        UsageError: The line is wrong; the message is one line.
        HelpShown: The line requested help, which was printed.
    """
    try:
        words: Sequence[str] = shlex.split(line)
    except ValueError as error:
        raise UsageError(f"{parser.prog}: {error}") from None
    return parse_words(parser, words)


def parse_words(parser: argparse.ArgumentParser, words: Sequence[str]) -> argparse.Namespace:
    """Parse the words of a line; raises as `parse` does."""
    options, rest = parser.parse_known_args(_with_default_verb(parser, words))
    if rest:  # the error names the verb; argparse's own would name the outermost group
        prog = getattr(options, "words", parser.prog)
        raise UsageError(f"{prog}: unrecognized arguments: {' '.join(rest)} (see {prog} --help)")
    return options


def _with_default_verb(parser: argparse.ArgumentParser, words: Sequence[str]) -> list[str]:
    """Return the words with the group's default verb inserted where none is given."""
    for index, word in enumerate(words):
        verbs = verb_parsers(parser)
        if word not in verbs:
            is_left_out = word.startswith("-") and word not in ("-h", "--help")
            is_left_out |= "" in verbs and word.isdecimal()
            return _inserted(parser, words, index) if verbs and is_left_out else list(words)
        parser = verbs[word]
    return _inserted(parser, words, len(words))


def _inserted(parser: argparse.ArgumentParser, words: Sequence[str], index: int) -> list[str]:
    default = getattr(parser, "default_verb", None)
    return list(words) if default is None else [*words[:index], default, *words[index:]]


def verb_parsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of a group's verbs by word; {} for the parser of a verb."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}
