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
#: Of a value that is no secret as a whole, as in `sasl.jaas.config`: what stands in quotes or behind `=`.
_PARTS = re.compile(r"""[^\s"'=;]+""")
#: Words of JAAS that say nothing; the class of the login module is found by its dots.
_PLAIN = re.compile(
    r"required|requisite|optional|sufficient|username|password|true|false|[A-Za-z]\w*(\.\w+){2,}"
)
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
    """The text without passwords, keys and tokens of these properties, whole or in part."""
    secrets = set()
    for name, value in given.items():
        if _SECRET.search(name):
            secrets |= {value, *(word for word in _PARTS.findall(value) if not _PLAIN.fullmatch(word))}
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", lambda _: HIDDEN, text)
    return text
