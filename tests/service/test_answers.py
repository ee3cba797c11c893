"""The OpenAPI document says what answers hold; tests/service/test_fuzz.py has answers keep to it."""

from json import dumps
from pathlib import Path
from typing import Any

import pytest

from laxity_scheduler.http.answers import WhatIfAnswer
from tests.support.memory_world import MemoryWorld
from tests.support.services import manifest, staged

STEPS = [{"name": "pretrain", "after": [], "count": 1}]
GROUP = {"name": "release", "deadline": "8h", "steps": STEPS}


@pytest.mark.parametrize(
    ("path", "schema"),
    [
        ("/v1/jobs/default/a", "Job"),
        ("/v1/jobs/default/c", "Job"),
        ("/v1/jobs/default/a/explain", "Explanation"),
        ("/v1/groups/default/release", "GroupAnswer"),
        ("/v1/cluster", "Cluster"),
    ],
)
def test_every_field_of_an_answer_stands_in_its_schema(
    path: str, schema: str, tmp_path: Path
) -> None:
    with staged(tmp_path, MemoryWorld(4)) as stage:
        stage.submit("a", deadline="1h", epochs=100)
        stage.submit("c", deadline="1s", epochs=100)
        stage.http.post("/v1/groups", json=GROUP)
        stage.until("default/c", lambda view: view["state"] == "refused", "refused")
        answer = stage.http.get(path).json()
        schemas = stage.http.get("/openapi.json").json()["components"]["schemas"]

    assert unnamed(answer, schema, schemas) == []


def test_every_field_of_a_whatif_stands_in_its_schema(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(4)) as stage:
        answers = [
            stage.http.post("/v1/whatif", json=manifest("b", deadline=deadline)).json()
            for deadline in ("1h", "1s")
        ]
        schemas = stage.http.get("/openapi.json").json()["components"]["schemas"]

    assert {answer["verdict"] for answer in answers} == {"promised", "refused"}
    for answer in answers:
        WhatIfAnswer.model_validate_json(dumps(answer), strict=True)
        assert unnamed(answer, "WhatIfAnswer", schemas) == []


def unnamed(answer: dict[str, Any], schema: str, schemas: dict[str, Any]) -> list[str]:
    """Fields of the answer, and of answers in it, that the schema does not name."""
    properties = schemas[schema]["properties"]
    names = [f"{schema}.{name}" for name in answer if name not in properties]
    for name in answer.keys() & properties.keys():
        part = properties[name].get("items", properties[name])
        if "$ref" in part:
            values = answer[name] if isinstance(answer[name], list) else [answer[name]]
            inner = part["$ref"].rpartition("/")[2]
            names += [missing for value in values for missing in unnamed(value, inner, schemas)]
    return names
