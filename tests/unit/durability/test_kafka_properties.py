"""Which of a user's properties of Kafka's clients a verdict uses, and what of them it never shows."""

import pytest

from holdfast.durability.kafka_properties import unknown_properties, used_properties, without_secrets

JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="alice" password="s3cret pass;word";'
)
GIVEN = {
    "sasl.jaas.config": JAAS,
    "ssl.key.password": "k3y",
    "sasl.mechanism": "PLAIN",
    "client.id": "k3y-of",
}
KNOWN = ("security.protocol", "sasl.jaas.config", "sasl.mechanism", "acks", "group.id")


def test_a_name_that_no_client_has_is_named_with_the_one_that_was_meant() -> None:
    said = unknown_properties(["sasl.mechanism", "security.protocl", "own"], KNOWN)
    assert said == "no property of Kafka's clients: own, security.protocl (did you mean security.protocol?)"
    many = unknown_properties([f"own{number}" for number in range(9)], KNOWN)
    assert many is not None
    assert many.endswith(" and 4 more")


def test_names_of_producers_and_of_providers_are_no_mistakes() -> None:
    assert unknown_properties(["acks", "group.id", "config.providers.file.class"], KNOWN) is None


def test_only_what_says_how_to_connect_is_used() -> None:
    shared = {"security.protocol", "client.id", "request.timeout.ms", "bootstrap.servers"}
    connecting = {"security.protocol": "SSL", "client.id": "me", "config.providers.file.class": "a.B"}
    others = {"acks": "all", "group.id": "g", "request.timeout.ms": "1", "bootstrap.servers": "x:1"}
    reading = {"isolation.level": "read_committed", "interceptor.classes": "a.C"}
    assert used_properties(connecting | others | reading, shared | {"isolation.level"}) == connecting


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"cannot read {JAAS}!", "cannot read [hidden]!"),
        ("Value not specified for key 's3cret' in JAAS", "Value not specified for key '[hidden]' in JAAS"),
        ("key 'word', pass", "key '[hidden]', [hidden]"),
        ("k3y, k3y_1 and passwords", "[hidden], [hidden]_1 and passwords"),
        ("PlainLoginModule: username, password of PLAIN", "PlainLoginModule: username, password of PLAIN"),
    ],
)
def test_secrets_are_hidden_whole_and_in_part(text: str, said: str) -> None:
    assert without_secrets(text, GIVEN) == said


MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.mark.parametrize(
    ("options", "text", "said"),
    [
        ('password="S3.cret.pw"', "login with S3.cret.pw failed", "login with [hidden] failed"),
        ("password=S3.cret.pw", "login with S3.cret.pw failed", "login with [hidden] failed"),
        ('oauth="eyJhbG.eyJzdW.c2ln"', "bad token: eyJhbG.eyJzdW.c2ln", "bad token: [hidden]"),
        ("password='S3.cret.pw'", "login_S3.cret.pw_", "login_[hidden]_"),
        (r'password="hun\"ter2x"', 'no hun"ter2x', "no [hidden]"),
        (r'password="hun\"ter2x"', r'no "hun\"ter2x"', 'no "[hidden]"'),
        (r'password="a\\b\1018\t"', "no a\\bA8\t.", "no [hidden]."),
        ('password="a b;c=d"', "no a b;c=d.", "no [hidden]."),
        ('password="s3cret', "no s3cret", "no [hidden]"),
        ('password="abcd" token="cdef"', "no abcdef", "no [hidden]"),
        ('password="hidden" token="d"', "no hidden", "no [hidden]"),
        ('username="u" password="s3"', "user u us3", "user [hidden] u[hidden]"),
        ('serviceName="kafka" useKeyTab="true"', "Kafkas of kafka: true", "Kafkas of [hidden]: true"),
        ('password="x.y.z"', f"{MODULE} required", f"{MODULE} required"),
        ('a="b"; own.LoginModule required', "own.LoginModule", "own.LoginModule"),
    ],
)
def test_values_of_jaas_are_hidden_wherever_they_stand(options: str, text: str, said: str) -> None:
    given = {"sasl.jaas.config": f"{MODULE} required {options};"}
    assert without_secrets(text, given) == said


def test_a_secret_of_dotted_words_is_one_without_jaas() -> None:
    given = {"ssl.key.password": "S3.cret.pw", "sasl.oauthbearer.client.credentials.client.secret": "a.b.c"}
    assert without_secrets("S3.cret.pw: a.b.c, S3.cret", given) == "[hidden]: [hidden], S3.cret"
