import json

import pytest

from examples.demo.arguments import parse_arguments
from examples.demo.parts import Cast, cast_for
from laxity import names


def cast(servers_s: float = 20.0) -> Cast:
    return cast_for(passes=4, epoch_s=1.0, servers_s=servers_s)


def test_a_part_is_submitted_under_the_id_that_the_demo_knows_beforehand() -> None:
    part = cast().rush.due(12.5)

    manifest = part.manifest()

    assert f"default/{manifest['metadata']['name']}" == part.id
    assert manifest["metadata"]["annotations"][names.DEADLINE] == "12.5s"


def test_what_the_demo_says_to_a_flow_arrives_as_it_was_said() -> None:
    part = cast().steady.due(60)

    options, parameters = parse_arguments(part.command()[2:])

    assert options == {**part.options, "name": part.name, "idempotency_key": part.key}
    assert parameters == {"passes": 4}


def test_what_fills_the_slots_lasts_longer_where_flows_start_slowly() -> None:
    """CI saw the demo fail where the best-effort jobs were over before anybody needed room."""
    quick, slow = cast(5.0), cast(20.0)

    assert slow.overnight.epochs - quick.overnight.epochs == 15
    assert slow.sweep.epochs - quick.sweep.epochs == 15
    assert slow.steady.epochs == quick.steady.epochs


def test_a_flow_runs_by_itself_without_anything_said() -> None:
    assert parse_arguments([]) == ({}, {})


def test_what_is_no_json_object_is_an_error() -> None:
    with pytest.raises(SystemExit):
        parse_arguments(["--options", json.dumps([1])])
