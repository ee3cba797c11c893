import json

import pytest

from laxity import names
from laxity.demo.cast import cast_for
from laxity.demo.said import said


def test_a_part_is_submitted_under_the_id_that_the_demo_knows_beforehand() -> None:
    part = cast_for(passes=4, epoch_s=1.0).rush.due(12.5)

    manifest = part.manifest()

    assert f"default/{manifest['metadata']['name']}" == part.id
    assert manifest["metadata"]["annotations"][names.DEADLINE] == "12.5s"


def test_what_the_demo_says_to_a_flow_arrives_as_it_was_said() -> None:
    part = cast_for(passes=4, epoch_s=1.0).steady.due(60)

    options, parameters = said(part.command()[2:])

    assert options == {**part.options, "name": part.name, "idempotency_key": part.key}
    assert parameters == {"passes": 4}


def test_a_flow_runs_by_itself_without_anything_said() -> None:
    assert said([]) == ({}, {})


def test_what_is_no_json_object_is_an_error() -> None:
    with pytest.raises(SystemExit):
        said(["--options", json.dumps([1])])
