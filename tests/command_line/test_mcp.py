"""`laxity mcp`: an agent's client over stdio, in front of a real service."""

import asyncio
import json
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest

from tests.support.local_service import LocalService, local_service
from tests.support.services import manifest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(240),
    pytest.mark.skipif(find_spec("mcp") is None, reason="mcp is not installed"),
]
FLOW = """
import time
from laxity import Training, deadline_flow

print("printed as the file is imported")

@deadline_flow(model="naps", epochs=3, epoch_estimate="0.3s")
def nap(training: Training, seconds: float = 0.2) -> int:
    for epoch in training.epochs():
        time.sleep(seconds)
    return training.total_epochs
"""
TOOLS = {"whatif", "submit", "show", "explain", "offers", "accept", "ls", "cluster"}


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalService]:
    home = tmp_path_factory.mktemp("agents")
    (home / "naps.py").write_text(FLOW)
    with local_service(home, slots=1) as started:
        yield started


def call_tools(live: LocalService, *calls: tuple[str, dict[str, Any]], **environ: str) -> list[Any]:
    """The tools' names, then what each call was answered: its value, or the text of its error."""
    from mcp import Client, StdioServerParameters, stdio_client

    async def talk() -> list[Any]:
        server = StdioServerParameters(
            command=sys.executable,
            args=["-m", "laxity.cli.main", "mcp"],
            env={**live.environment, **environ},
        )
        async with Client(stdio_client(server)) as client:
            answers: list[Any] = [{tool.name for tool in (await client.list_tools()).tools}]
            for name, arguments in calls:
                result = await client.call_tool(name, arguments)
                if result.is_error:
                    answers.append(result.content[0].text)
                else:
                    value = result.structured_content
                    answers.append(value["result"] if set(value) == {"result"} else value)
            return answers

    return asyncio.run(talk())


def test_an_agent_asks_submits_and_follows_a_job(live: LocalService) -> None:
    given = {"source": f"{live.home / 'naps.py'}:nap", "params": {"seconds": 0.1}, "name": "agents"}
    options = {"deadline": "2m", "idempotency_key": "once"}

    tools, asked, first, again, shown, why, jobs, nodes = call_tools(
        live,
        ("whatif", given | {"options": {"deadline": "2m"}}),
        ("submit", given | {"options": options}),
        ("submit", given | {"options": options}),
        ("show", {"job": "agents"}),
        ("explain", {"job": "agents"}),
        ("ls", {}),
        ("cluster", {}),
    )

    assert tools == TOOLS
    assert asked[0]["verdict"] == "promised"
    assert first[0]["verdict"] == "promised"
    assert again[0]["uid"] == first[0]["uid"] == shown["uid"]
    assert why["chain"]
    assert [job["id"] for job in jobs] == ["default/agents"]
    assert nodes["nodes"]
    assert live.ended("agents").kept is True


def test_an_agent_takes_an_offer_of_a_refused_job(live: LocalService) -> None:
    given = {"source": f"{live.home / 'naps.py'}:nap", "name": "hasty"}

    _, refused, offers, accepted = call_tools(
        live,
        ("submit", given | {"options": {"deadline": "0.4s"}}),
        ("offers", {"job": "hasty"}),
        ("accept", {"job": "hasty", "offer": 1}),
    )

    assert refused[0]["verdict"] == "refused"
    assert offers == refused[0]["offers"]
    assert accepted["verdict"] == "promised"


@pytest.mark.parametrize(
    ("arguments", "token", "says"),
    [
        pytest.param({"source": "nothing.py:fn"}, "", "nothing.py", id="no such file"),
        pytest.param(
            {"source": "naps.py:nap", "options": {"deadline": "20"}}, "", "deadline", id="no unit"
        ),
        pytest.param({"source": "naps.py:nap"}, "another", "token", id="no right"),
    ],
)
def test_what_a_tool_cannot_do_is_said_to_the_agent(
    live: LocalService, arguments: dict[str, Any], token: str, says: str
) -> None:
    source = str(live.home / arguments["source"])
    environ = {"LAXITY_TOKEN": token} if token else {}

    _, answer = call_tools(live, ("whatif", arguments | {"source": source}), **environ)

    assert says in answer
    assert "Traceback" not in answer


def test_options_are_those_that_a_job_is_submitted_with() -> None:
    from laxity.cli.job_source import OPTION
    from laxity.cli.mcp_tools import JobOptions

    assert set(JobOptions.model_fields) <= set(OPTION.values())


def test_file_of_jobs_that_wait_for_one_another_is_one_group(live: LocalService) -> None:
    file = live.home / "release.yaml"
    jobs = step("first"), step("second", after="first")
    file.write_text("\n---\n".join(map(json.dumps, jobs)))
    _, (group,) = call_tools(live, ("submit", {"source": str(file), "options": {"deadline": "2h"}}))
    assert (group["kind"], [row["name"] for row in group["steps"]]) == (
        "workflow",
        ["first", "second"],
    )
    live.client.end_group(group["id"], "cancelled")


def step(name: str, **said: str) -> dict[str, Any]:
    return manifest(name, epochs=2, widths="1", epoch_estimate="1s", **said)
