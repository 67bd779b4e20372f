"""The classes of `busbw.parts` say what the schema says, which is made from the types that write the JSON."""

import dataclasses
import json
import typing
from pathlib import Path

import pytest

from busbw import parts

SCHEMA = Path(__file__).parents[2] / "docs/schema/explain-1.schema.json"
KINDS = [kind for kind in vars(parts).values() if dataclasses.is_dataclass(kind)]
NAMES = {"Problem": "Line"}
"""Classes that the schema calls by another name."""
FIELDS = {"from_rank": "from", "to_rank": "to", "fault": "class"}
"""Fields whose names Python keeps for itself."""


def of(member: parts.Json, defs: parts.Json) -> tuple[bool, set]:
    """Whether a member may be null, and the words that it is held to, if any."""
    member = {**defs[member["$ref"].rsplit("/", 1)[1]], **member} if "$ref" in member else member
    words = {*member.get("enum", []), *([member["const"]] if "const" in member else [])}
    null = "null" in member.get("type", []) or None in words
    for nullable, more in (of(one, defs) for one in [*member.get("anyOf", []), *member.get("oneOf", [])]):
        null, words = null or nullable, words | more
    return null, words - {None, True, False}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_class_is_as_the_schema_has_it(kind: type) -> None:
    defs = json.loads(SCHEMA.read_text())["$defs"]
    members = defs[NAMES.get(kind.__name__, kind.__name__)]["properties"]
    for field in dataclasses.fields(kind):
        null, words = of(members[FIELDS.get(field.name, field.name)], defs)
        where = f"{kind.__name__}.{field.name}: {field.type}"
        known = typing.get_args(getattr(parts, field.type, None)) or ()
        assert "None" in field.type or not null or "float" in field.type, where
        assert "Literal" not in field.type or all(word in field.type for word in words), where
        assert not known or set(known) == words, where
