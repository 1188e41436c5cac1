"""Kafka itself with logins and TLS, judged through Spark's own Kafka source with a user's properties."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.kafka_clients.programs import KafkaTools, java, kafka_server, run
from tests.kafka_clients.test_any_kafka import RECORDS, program_of_page, pytestmark, source, spark

__all__ = ["pytestmark", "source"]

PASSWORD, STORE_PASSWORD = "s3cret-pw", "st0re-pw"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SETTINGS = f"""listener.name.sasl.sasl.enabled.mechanisms=PLAIN
listener.name.both.sasl.enabled.mechanisms=PLAIN
sasl.enabled.mechanisms=PLAIN
listener.name.sasl.plain.sasl.jaas.config={MODULE} required user_alice="{PASSWORD}";
listener.name.both.plain.sasl.jaas.config={MODULE} required user_alice="{PASSWORD}";
ssl.keystore.type=PKCS12
ssl.keystore.password={STORE_PASSWORD}
"""
LISTENERS = {"SASL": "SASL_PLAINTEXT", "TLS": "SSL", "BOTH": "SASL_SSL"}


def login(password: str, protocol: str = "SASL_PLAINTEXT") -> dict[str, str]:
    jaas = f'{MODULE} required username="alice" password="{password}";'
    return {"security.protocol": protocol, "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas}


def trust(certificate: Path) -> dict[str, str]:
    return {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificate),
    }


class Secured(NamedTuple):
    """Kafka, and what a client must have to be let in."""

    addresses: dict[str, str]
    certificate: Path
    other_certificate: Path
    ledger: Path


def certified(folder: Path, name: str) -> Path:
    """The certificate of a key that was just made; the key is in the store `<name>.p12` beside it."""
    keytool, store = str(Path(java()).with_name("keytool")), folder / f"{name}.p12"
    in_store = ("-alias", "key", "-keystore", str(store), "-storepass", STORE_PASSWORD)
    named = ("-dname", "CN=localhost", "-ext", "SAN=ip:127.0.0.1,dns:localhost", "-keyalg", "RSA")
    certificate = folder / f"{name}.pem"
    made = (
        ("-genkeypair", *named, "-storetype", "PKCS12", "-validity", "30"),
        ("-exportcert", "-rfc", "-file", str(certificate)),
    )
    for words in made:
        subprocess.run([keytool, *words, *in_store], check=True, capture_output=True)
    return certificate


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Secured]:
    pytest.importorskip("confluent_kafka", reason="pip install confluent-kafka")
    certificate, other = certified(tmp_path, "broker"), certified(tmp_path, "other")
    settings = f"{SETTINGS}ssl.keystore.location={tmp_path / 'broker.p12'}\n"
    with kafka_server(tmp_path, LISTENERS, settings) as addresses:
        new = ("--create", "--topic", "orders", "--partitions", "3")
        KafkaTools(addresses["PLAINTEXT"]).succeeds("TopicCommand", *new)
        sent = run([sys.executable, "-c", program_of_page("orders", addresses["PLAINTEXT"])], cwd=tmp_path)
        assert sent.code == 0, sent
        yield Secured(addresses, certificate, other, tmp_path / "sends.jsonl")


def test_a_login_and_a_certificate_are_taken_and_wrong_ones_are_sentences(
    secured: Secured, source: str
) -> None:
    """One session judges all: (listener, properties, exit code, what is said)."""
    own = trust(secured.certificate)
    tool = {"bootstrap.servers": "x:1", "group.id": "g", "acks": "all", "interceptor.classes": "no.Class"}
    cases = {
        "login": ("SASL", login(PASSWORD), 0, ""),
        "the file of a tool": ("SASL", {**login(PASSWORD), **tool}, 0, ""),
        "certificate": ("TLS", own, 0, ""),
        "both": ("BOTH", {**own, **login(PASSWORD, "SASL_SSL")}, 0, ""),
        "wrong password": (
            "SASL",
            login("wr0ng-pw"),
            6,
            "Authentication failed: Invalid username or password",
        ),
        "wrong certificate": ("TLS", trust(secured.other_certificate), 6, "SSL handshake failed"),
        "no such file": ("TLS", trust(secured.certificate / "no"), 6, "broker.pem/no"),
        "no such property": ("TLS", {**own, "ssl.trustore": "x"}, 6, "ssl.trustore"),
        "no properties": ("TLS", {}, 6, "--command-config"),
    }
    asked = {
        name: {
            "ledger": str(secured.ledger),
            "servers": secured.addresses[listener],
            "properties": properties,
            "timeout_ms": 10_000 if code else 60_000,
        }
        for name, (listener, properties, code, _) in cases.items()
    }
    script = str(Path(__file__).with_name("kafka_verdicts.py"))
    done = spark(script, source, json.dumps(asked))
    assert done.code == 0, done
    found = json.loads(done.lines[-1])
    for name, (_, _, code, says) in cases.items():
        assert (found[name]["code"], says in found[name]["said"]) == (code, True), found[name]["said"]
        if code == 0:
            assert f"{RECORDS:,} served" in found[name]["said"]
            assert "KafkaRelation" in found[name]["plan"]
    for secret in (PASSWORD, "wr0ng-pw"):
        assert secret not in done.out + done.err


def test_the_command_takes_the_file_of_kafka_s_tools(secured: Secured, source: str, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    given = {**login(PASSWORD), "bootstrap.servers": secured.addresses["SASL"]}
    file.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
    words = ("validate", "--foreign", str(secured.ledger), "--source", "kafka", "--jars", source)
    report = tmp_path / "report"
    done = spark(
        *("-m", "holdfast.cli", *words, "--command-config", str(file)),
        *("--report", str(report), "--tables", str(tmp_path / "tables"), "--output", "prometheus"),
    )
    assert (done.code, f"acknowledged_records {RECORDS}" in done.out) == (0, True), done
    written = [path for folder in ("report", "tables") for path in (tmp_path / folder).rglob("*")]
    assert report / "verdict.json" in written
    for path in filter(os.path.isfile, written):
        assert PASSWORD.encode() not in path.read_bytes(), path
