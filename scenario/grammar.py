"""Reads the data-driven test files: comments, commands, `----`, expected output up to a blank line.

The grammar is that of the scenario files: one file is one situation. A block is one or more command lines, a
line `----`, then the output of all of them. Arguments are words, `key=value`, and id sets `key=(1,2)`. The
tables of commands are in `scenario.controller_commands`, `scenario.partition_commands` and
`scenario.raft_commands`.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import unified_diff
from pathlib import Path

SEPARATOR = "----"

#: `key=(1, 2)` is one argument, with anything in the parentheses; all else ends at a space
_PART = re.compile(r"[^\s=()]+=\([^()]*\)(?!\S)|\S+")


class ParseError(ValueError):
    """The file does not follow the grammar. The text names file and line."""


@dataclass(slots=True)
class Command:
    """One line: a name, its words and its `key=value` arguments. Reading one marks it as used."""

    line: str
    where: str
    name: str = ""
    words: list[str] = field(default_factory=list)
    arguments: dict[str, str] = field(default_factory=dict)
    #: positions of words that were read
    _used: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.name, *rest = _PART.findall(self.line)
        for part in rest:
            key, equals, value = part.partition("=")
            if not equals:
                self.words.append(part)
            elif key in self.arguments:
                raise ParseError(f"{self.where}: {key} is given twice")
            else:
                self.arguments[key] = value

    def text(self, key: str, default: str | None = None) -> str:
        """The value of a key; without default it must be there."""
        value = self.arguments.pop(key, default)
        if value is None:
            raise ParseError(f"{self.where}: {self.name} needs {key}=")
        return value

    def integer(self, key: str, default: int | None = None) -> int:
        """As `text`, as a number."""
        return parse_id(self.text(key, None if default is None else str(default)), self.where)

    def ids(self, key: str, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """As `text`, as a tuple of numbers in the order given."""
        if default is not None and key not in self.arguments:
            return default
        return parse_ids(self.text(key), self.where)

    def word(self, index: int = 0) -> str:
        """The word at `index`; it must be there."""
        if index >= len(self.words):
            raise ParseError(f"{self.where}: {self.name} needs more words")
        self._used.add(index)
        return self.words[index]

    def number(self, index: int = 0) -> int:
        """As `word`, as a number."""
        return parse_id(self.word(index), self.where)

    def numbers(self) -> tuple[int, ...]:
        """All words as numbers, at least one."""
        self.word()
        return tuple(self.number(index) for index in range(len(self.words)))

    def flag(self, word: str) -> bool:
        """Whether this word is among the words."""
        found = [index for index, one in enumerate(self.words) if one == word]
        self._used.update(found)
        return bool(found)

    def choice(self, key: str, choices: Iterable[str], default: str | None = None) -> str:
        """As `text`, one of `choices`."""
        return self._one_of(self.text(key, default), choices)

    def word_of(self, choices: Iterable[str], index: int = 0) -> str:
        """As `word`, one of `choices`."""
        return self._one_of(self.word(index), choices)

    def _one_of(self, value: str, choices: Iterable[str]) -> str:
        expected = tuple(choices)
        if value not in expected:
            raise ParseError(f"{self.where}: expected {'|'.join(expected)}, got {value}")
        return value

    def finish(self) -> None:
        """Refuse words and arguments that were not read. Raises: ParseError."""
        if self.arguments:
            raise ParseError(f"{self.where}: {self.name} knows no {sorted(self.arguments)[0]}=")
        left = [word for index, word in enumerate(self.words) if index not in self._used]
        if left:
            raise ParseError(f"{self.where}: {self.name} does not know what to do with {left[0]}")


#: functions that run a command and return its output, by its name
CommandTable = Mapping[str, Callable[[Command], list[str]]]


def run_command(table: CommandTable, command: Command) -> list[str]:
    """Run one command of a table; returns its output. Raises: ParseError for an unknown command."""
    run = table.get(command.name)
    if run is None:
        raise ParseError(f"{command.where}: unknown command {command.name}")
    lines = run(command)
    command.finish()
    return lines


def parse_ids(text: str, where: str = "") -> tuple[int, ...]:
    """The ids of `(1,2)`."""
    if not (text.startswith("(") and text.endswith(")")):
        raise ParseError(f"{where}: expected ids as (1,2), got {text}")
    inside = text[1:-1].strip()
    return tuple(parse_id(part.strip(), where) for part in inside.split(",")) if inside else ()


def parse_id(text: str, where: str = "") -> int:
    """The number in `text`."""
    try:
        return int(text)
    except ValueError:
        raise ParseError(f"{where}: expected a number, got {text}") from None


@dataclass(slots=True)
class Block:
    """Commands and their expected output."""

    head: list[str]
    commands: list[Command]
    expected: list[str]


def parse_file(path: Path) -> list[Block]:
    """The blocks of a file. Raises: ParseError."""
    return list(_blocks(path))


def _blocks(path: Path) -> Iterator[Block]:
    block = Block([], [], [])
    in_output = False
    lines = path.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate([*lines, ""], start=1):
        where = f"{path.name}:{number}"
        if in_output:
            if line.strip():
                block.expected.append(line.rstrip())
                continue
            yield block
            block, in_output = Block([], [], []), False
        elif line.rstrip() == SEPARATOR:
            if not block.commands:
                raise ParseError(f"{where}: {SEPARATOR} without commands")
            in_output = True
        else:
            block.head.append(line)
            if line.strip() and not line.lstrip().startswith("#"):
                block.commands.append(Command(line, where))
    if block.commands:
        raise ParseError(f"{path.name}: the last block has no {SEPARATOR}")


def run_file(path: Path, execute: Callable[[Command], list[str]], *, rewrite: bool = False) -> str:
    """Run every block through `execute`; returns a diff for each block that differs, empty when all match.

    With `rewrite` the output is written into the file instead; review the diff.
    """
    written: list[str] = []
    differences: list[str] = []
    for block in parse_file(path):
        output: list[str] = []
        for command in block.commands:
            try:
                output += execute(command)
            except AssertionError as error:
                error.add_note(f"{command.where}: {command.line}")
                raise
        written += [*block.head, SEPARATOR, *output, ""]
        if output != block.expected:
            where = block.commands[0].where
            names = (f"{where} expected", f"{where} seen")
            differences += unified_diff(block.expected, output, *names, lineterm="")
    if rewrite:
        path.write_text("\n".join(written).rstrip("\n") + "\n", encoding="utf-8")
        return ""
    return "\n".join(differences)
