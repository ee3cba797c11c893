"""A script that posts its progress as it is told: each argument is a step.

`40` posts 40 %, `3/8` posts steps done of all, `loss=0.5` posts a metric, `await:NAME` waits for a file,
`note:NAME` makes one, `leave:NAME` starts a child that makes it after SIGTERM, `exit:3` exits,
`term:A,B` takes the steps A and B after SIGTERM, in place of what is left, `lead:A` the step A as
rank 0. `{RANK}` and the like become these variables. Others are left out.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path
from typing import Any

PAUSE = threading.Event()


def post(status: dict[str, Any]) -> None:
    token = Path(os.environ["KUBEFLOW_TRAINER_SERVER_TOKEN"]).read_text()
    request = urllib.request.Request(  # noqa: S310 - the worker's own address
        os.environ["KUBEFLOW_TRAINER_SERVER_URL"],
        data=json.dumps({"trainerStatus": status}).encode(),
        headers={"Authorization": f"Bearer {token}"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
        assert answer.status == 200


def post_metrics(**values: object) -> None:
    post({"metrics": [{"name": name, "value": str(value)} for name, value in values.items()]})


def wait_for(name: str) -> None:
    while not Path(name).exists():
        PAUSE.wait(0.01)


def take_on_term(steps: str) -> None:
    def take(*_: object) -> None:
        walk(steps.split(","))
        os._exit(0)

    signal.signal(signal.SIGTERM, take)


def leave_child(name: str) -> None:
    subprocess.Popen(["sh", "-c", f"trap 'sleep 0.3; touch {name}; exit' TERM; sleep 600 & wait"])


def own_step(given: str) -> str:
    """The step as this worker takes it."""
    step = given.format_map(os.environ)
    leads = os.environ.get("RANK", "0") == "0"
    return "" if step.startswith("lead:") and not leads else step.removeprefix("lead:")


def walk(steps: list[str]) -> None:
    for step in map(own_step, steps):
        kind, _, value = step.partition(":")
        if step.isdigit():
            post({"progressPercentage": int(step)})
        elif kind == "await":
            wait_for(value)
        elif kind == "note":
            Path(value).touch()
        elif kind == "leave":
            leave_child(value)
        elif kind == "exit":
            os._exit(int(value))
        elif kind == "term":
            take_on_term(value)
        elif "/" in step:
            done, total = step.split("/")
            post_metrics(current_step=done, total_steps=total)
        elif "=" in step:
            name, value = step.split("=")
            post_metrics(**{name: value})


if __name__ == "__main__":
    walk(sys.argv[1:])
