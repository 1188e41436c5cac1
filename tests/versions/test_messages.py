"""Every version of a message and every record that the earlier build knows means the same today."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

#: Runs in either build: what it sends and stores, by name, version and field.
DESCRIBE = """
import json, sys
from holdfast.metadata.records import RECORD_CLASSES, RECORD_VERSION
from holdfast.protocol.messages import APIS
from holdfast.protocol.schema.fields import schema_of
from holdfast.raft.core.control_records import LeaderChangeRecord

def fields(cls, version):
    return [[spec.name, *types(spec.type, version)] for spec in schema_of(cls) if spec.since <= version]

def types(type_, version):
    found = [type_.name]
    while type_ is not None:
        if type_.cls is not None:
            found.append(fields(type_.cls, version))
        type_ = type_.of
    return found

found = {}
for api in APIS.values():
    for version in range(api.min_version, api.max_version + 1):
        found[f"{api.key.name} request, version {version}"] = fields(api.request, version)
        found[f"{api.key.name} response, version {version}"] = fields(api.response, version)
for key, cls in RECORD_CLASSES.items():
    for version in range(RECORD_VERSION + 1):
        found[f"record {key}, version {version}"] = fields(cls, version)
found["leader change, version 0"] = fields(LeaderChangeRecord, 0)
json.dump(found, sys.stdout)
"""


def described(build: Path | None = None) -> dict[str, Any]:
    environment = {**os.environ, **({} if build is None else {"PYTHONPATH": str(build)})}
    done = subprocess.run(
        [sys.executable, "-P", "-c", DESCRIBE], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_what_the_earlier_build_sends_and_stores_has_the_same_fields_today(earlier_build: Path) -> None:
    earlier, present = described(earlier_build), described()
    assert earlier["FETCH request, version 0"]
    assert {name: present.get(name) for name in earlier} == earlier
