"""Properties of Kafka's clients as users keep them for Kafka's own tools (`--command-config`): which of them
a verdict uses, and what of them is never shown. Pure; which names there are is asked of Kafka itself.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches

HIDDEN = "[hidden]"
#: The command line says these, or they decide what is read and for how long.
_OURS = frozenset(
    ("bootstrap.servers", "isolation.level", "request.timeout.ms", "default.api.timeout.ms")
)  # fmt: skip
#: Names that go on as their user likes: `config.providers.file.class`.
_PROVIDERS = "config.providers."
_SECRET = re.compile(r"password|secret|token|jaas|keystore\.key|credential|authorization", re.IGNORECASE)
#: Words of a secret, which are hidden where they stand alone.
_PARTS = re.compile(r"""[^\s"'=;]+""")
#: Words of `sasl.jaas.config`, with the option whose value each is: one in quotes, which takes escapes, is
#: one word.
_OF_JAAS = re.compile(
    r"""(?:([^\s"'=;]+)\s*=\s*)?(?:"((?:\\.|[^"\\])*)"?|'((?:\\.|[^'\\])*)'?|([^\s"'=;]+))""", re.DOTALL
)
_ESCAPE = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)
_ESCAPED = dict(zip("abfnrtv", "\a\b\f\n\r\t\v", strict=True))
#: Words of JAAS that say nothing, beside the class of the login module, which comes first.
_PLAIN = re.compile(r"required|requisite|optional|sufficient|username|password|true|false|[\w.$]+LoginModule")
#: Options of JAAS whose values are ordinary words, and may be parts of others that are not theirs.
_NAMING = frozenset(("username", "principal", "serviceName", "keyTab"))
_UNKNOWN_SHOWN = 5


def unknown_properties(given: Iterable[str], known: Collection[str]) -> str | None:
    """A sentence about names that no client of Kafka has; None when there are none."""
    names = sorted(name for name in given if name not in known and not name.startswith(_PROVIDERS))
    if not names:
        return None
    words = []
    for name in names[:_UNKNOWN_SHOWN]:
        near = get_close_matches(name, sorted(known), n=1, cutoff=0.8)
        words.append(f"{name} (did you mean {near[0]}?)" if near else name)
    more = f" and {len(names) - _UNKNOWN_SHOWN} more" if len(names) > _UNKNOWN_SHOWN else ""
    return f"no property of Kafka's clients: {', '.join(words)}{more}"


def used_properties(given: Mapping[str, str], shared: Collection[str]) -> dict[str, str]:
    """Those of the properties that say how to connect; `shared`: names that Kafka's Admin and its consumer
    have both. The rest tells what to read, to whose group, or how to write."""
    return {
        name: value
        for name, value in given.items()
        if (name in shared and name not in _OURS) or name.startswith(_PROVIDERS)
    }


def without_secrets(text: str, given: Mapping[str, str]) -> str:
    """The text without passwords, keys and tokens of these properties, whole wherever they stand, and of
    their parts the words."""
    whole: set[str] = set()
    words: set[str] = set()
    for name, value in given.items():
        if _SECRET.search(name):
            secrets, others = _in_jaas(value) if "jaas" in name.lower() else ({value}, {value})
            whole |= {value, *secrets}
            words |= {word for other in (*secrets, *others) for word in _PARTS.findall(other)}
    found = [re.escape(secret) for secret in whole if secret]
    found += [rf"(?<!\w){re.escape(word)}(?!\w)" for word in words if not _PLAIN.fullmatch(word)]
    # one may begin within another, and what is hidden is not looked into again
    spans = sorted(match.span(1) for one in found for match in re.finditer(f"(?=({one}))", text))
    parts: list[str] = []
    end = 0
    for begin, behind in spans:
        if begin > end or not parts:
            parts += [text[end:begin], HIDDEN]
        end = max(end, behind)
    return "".join((*parts, text[end:]))


def _in_jaas(value: str) -> tuple[set[str], set[str]]:
    """(values of options, as they are written and as they are meant; what else stands there that may be a
    part of one, as quotes may be missing)."""
    secrets: set[str] = set()
    others: set[str] = set()
    for nth, (option, *quoted, bare) in enumerate(_OF_JAAS.findall(value)):
        written = "".join(quoted) or bare
        meant = _ESCAPE.sub(_unescaped, written)
        others.add(option)
        if option in _NAMING or (bare and not option):
            others |= {written, meant} if nth or option else set()
        elif written not in ("true", "false"):
            secrets |= {written, meant}
    return secrets, others


def _unescaped(match: re.Match[str]) -> str:
    """What Java's tokenizer makes of it."""
    said = match[1]
    return chr(int(said, 8)) if said.isdecimal() and said < "8" else _ESCAPED.get(said, said)
