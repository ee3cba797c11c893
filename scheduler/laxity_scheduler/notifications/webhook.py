"""Events of jobs as POST requests to one address."""

import contextlib
import json
import time
import urllib.request
from typing import Final

from laxity.http_login import request_to
from laxity_scheduler.notifications.message import Message

WEBHOOK_TIMEOUT_S: Final = 10.0


class Webhook:
    """Posts each event of a job as JSON to one address."""

    name = "webhook"

    def __init__(self, url: str) -> None:
        self._url = url

    def deliver(self, message: Message) -> None:
        if not message.events:
            return
        view = {name: value for name, value in message.view.items() if name != "cancelled"}
        body = json.dumps(
            {"events": list(message.events), "at": time.time(), "job": view}, default=str
        ).encode()
        headers = {"Content-Type": "application/json"}
        request = request_to(self._url, data=body, headers=headers, method="POST")
        with contextlib.closing(urllib.request.urlopen(request, timeout=WEBHOOK_TIMEOUT_S)):  # noqa: S310
            pass
