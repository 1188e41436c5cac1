"""Turns declared fields into Python functions, so that a message costs what hand-written code would.

Owns speed only: what it accepts and makes equals `schema.decode_by_schema` and is tested against it. A
compiled decoder takes exactly the fields that its version declares; anything else raises `Misfit`, and the
caller lets the reference codec say what is wrong. Seen: a fetch request of 100 rows in 51 us, not 220 us.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from holdfast.protocol.schema.types import Attachment, FieldSpec, FieldType, Kind

Schemas = Mapping[type, tuple[FieldSpec, ...]]


class Misfit(Exception):
    """The raw value is not exactly what the schema says."""


class Codec(NamedTuple):
    """Compiled functions of one message class at one version."""

    encode: Callable[[Any, Attachment], list[Any]]
    decode: Callable[[Any, memoryview], Any]


def compile_init(cls: type, specs: tuple[FieldSpec, ...]) -> Callable[..., None]:
    """An `__init__` for a frozen dataclass with slots.

    A frozen class guards every assignment, which costs 80 ns a field. Here the object is a twin without guard
    while it is filled, and becomes the message then.
    """
    names: dict[str, Any] = {"_become": object.__setattr__, "_Made": cls, "_Twin": _twin(cls, specs)}
    parameters = ["self"]
    lines: list[str] = []
    for spec in specs:
        if spec.default is dataclasses.MISSING:
            parameters.append(spec.name)
        else:
            names[f"_default_{spec.name}"] = spec.default
            parameters.append(f"{spec.name}=_default_{spec.name}")
        lines.append(f"    self.{spec.name} = {spec.name}")
    if lines:
        lines = ["    _become(self, '__class__', _Twin)", *lines, "    self.__class__ = _Made"]
    source = "\n".join([f"def __init__({', '.join(parameters)}):", *(lines or ["    pass"])])
    return _function(source, "__init__", names)


def compile_codec(cls: type, version: int, schemas: Schemas) -> Codec:
    """The functions for `cls` and, inside them, for the messages that it nests."""
    return _Compiler(version, schemas).codec(cls)


def _twin(cls: type, specs: tuple[FieldSpec, ...]) -> type:
    # Same slots, same layout: CPython lets an object change between the two classes.
    return type(cls.__name__, (), {"__slots__": tuple(spec.name for spec in specs)})


def _function(source: str, name: str, names: dict[str, Any]) -> Callable[..., Any]:
    exec(compile(source, f"<{name} made by schema_compiler>", "exec"), names)
    made: Callable[..., Any] = names[name]
    return made


def encode_records(value: Any, attachment: Attachment) -> list[int]:
    """Hand one buffer, or a sequence of them, to the attachment."""
    if isinstance(value, bytes | bytearray | memoryview):
        return attachment.add((value,))
    return attachment.add(value)


class _Compiler:
    """Writes the source of one class's functions; nested classes become functions that it calls."""

    def __init__(self, version: int, schemas: Schemas) -> None:
        self._version = version
        self._schemas = schemas
        self._made: dict[type, Codec] = {}

    def codec(self, cls: type) -> Codec:
        if cls not in self._made:
            specs = self._schemas[cls]
            self._made[cls] = Codec(self._encoder(cls, specs), self._decoder(cls, specs))
        return self._made[cls]

    # --- encoding -----------------------------------------------------------------------------------------

    def _encoder(self, cls: type, specs: tuple[FieldSpec, ...]) -> Callable[[Any, Attachment], list[Any]]:
        names: dict[str, Any] = {}
        items = [
            self._encoded(spec.type, f"m.{spec.name}", names, 0)
            for spec in specs
            if spec.since <= self._version
        ]
        source = f"def encode(m, attachment):\n    return [{', '.join(items)}]"
        return _function(source, "encode", names)

    def _encoded(self, type_: FieldType, value: str, names: dict[str, Any], depth: int) -> str:
        """An expression for the raw form of the expression `value`."""
        if type_.kind is Kind.SCALAR:
            return f"{value}[:{type_.cut}]" if type_.cut else value
        if type_.kind is Kind.RECORDS:
            names["_records"] = encode_records
            return f"_records({value}, attachment)"
        if type_.kind is Kind.STRUCT:
            assert type_.cls is not None
            name = f"_encode_{type_.cls.__name__}"
            names[name] = self.codec(type_.cls).encode
            return f"{name}({value}, attachment)"
        assert type_.of is not None
        if type_.kind is Kind.NULLABLE:
            if _is_plain(type_.of):
                return value
            return f"(None if {value} is None else {self._encoded(type_.of, value, names, depth)})"
        # msgpack writes a tuple as it writes a list
        if _is_plain(type_.of):
            return value
        item = f"i{depth}"
        return f"[{self._encoded(type_.of, item, names, depth + 1)} for {item} in {value}]"

    # --- decoding -----------------------------------------------------------------------------------------

    def _decoder(self, cls: type, specs: tuple[FieldSpec, ...]) -> Callable[[Any, memoryview], Any]:
        names: dict[str, Any] = {
            "_Misfit": Misfit,
            "_Made": cls,
            "_Twin": _twin(cls, specs),
            "_new": object.__new__,
        }
        sent = [spec for spec in specs if spec.since <= self._version]
        lines = [
            "def decode(raw, attachment):",
            f"    if type(raw) is not list or len(raw) != {len(sent)}: raise _Misfit",
        ]
        if sent:
            lines.append(f"    {', '.join(f'f{n}' for n in range(len(sent)))}, = raw")
        for number, spec in enumerate(sent):
            self._decoded(spec.type, f"f{number}", names, lines, "    ")
        if specs:
            lines.append("    made = _new(_Twin)")
            for number, spec in enumerate(specs):
                if spec.since <= self._version:
                    lines.append(f"    made.{spec.name} = f{number}")
                else:
                    names[f"_default_{spec.name}"] = spec.default
                    lines.append(f"    made.{spec.name} = _default_{spec.name}")
            lines += ["    made.__class__ = _Made", "    return made"]
        else:
            lines.append("    return _Made()")
        return _function("\n".join(lines), "decode", names)

    def _decoded(
        self, type_: FieldType, name: str, names: dict[str, Any], lines: list[str], indent: str
    ) -> None:
        """Statements that replace the raw value in the variable `name` by the decoded one."""
        if type_.kind is Kind.SCALAR:
            check = _check(type_, name)
            lines.append(f"{indent}if not ({check}): raise _Misfit")
        elif type_.kind is Kind.RECORDS:
            lines += [
                f"{indent}if type({name}) is not list or len({name}) != 2: raise _Misfit",
                f"{indent}start, size = {name}",
                f"{indent}if type(start) is not int or type(size) is not int: raise _Misfit",
                f"{indent}if start < 0 or size < 0 or start + size > len(attachment): raise _Misfit",
                f"{indent}{name} = attachment[start:start + size]",
            ]
        elif type_.kind is Kind.STRUCT:
            lines.append(f"{indent}{name} = {self._nested(type_, names)}({name}, attachment)")
        elif type_.kind is Kind.NULLABLE:
            assert type_.of is not None
            lines.append(f"{indent}if {name} is not None:")
            self._decoded(type_.of, name, names, lines, indent + "    ")
        else:
            self._decoded_array(type_, name, names, lines, indent)

    def _decoded_array(
        self, type_: FieldType, name: str, names: dict[str, Any], lines: list[str], indent: str
    ) -> None:
        assert type_.of is not None
        lines.append(f"{indent}if type({name}) is not list or len({name}) > {type_.high}: raise _Misfit")
        item = f"{name}i"
        if type_.of.kind is Kind.SCALAR:
            lines += [
                f"{indent}for {item} in {name}:",
                f"{indent}    if not ({_check(type_.of, item)}): raise _Misfit",
                f"{indent}{name} = tuple({name})",
            ]
        elif type_.of.kind is Kind.STRUCT:
            nested = self._nested(type_.of, names)
            lines.append(f"{indent}{name} = tuple([{nested}({item}, attachment) for {item} in {name}])")
        else:
            lines += [f"{indent}{name}s = []", f"{indent}for {item} in {name}:"]
            self._decoded(type_.of, item, names, lines, indent + "    ")
            lines += [f"{indent}    {name}s.append({item})", f"{indent}{name} = tuple({name}s)"]

    def _nested(self, type_: FieldType, names: dict[str, Any]) -> str:
        assert type_.cls is not None
        name = f"_decode_{type_.cls.__name__}"
        names[name] = self.codec(type_.cls).decode
        return name


def _is_plain(type_: FieldType) -> bool:
    """True when a value goes to msgpack as it is."""
    if type_.kind is Kind.SCALAR:
        return not type_.cut
    return type_.kind in (Kind.NULLABLE, Kind.ARRAY) and type_.of is not None and _is_plain(type_.of)


def _check(type_: FieldType, name: str) -> str:
    return type_.check.replace("{v}", name)
