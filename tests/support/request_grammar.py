"""Requests as a grammar makes them: a valid call in which some things are other things, by a seed."""

import copy
import json
import random
from collections.abc import Iterator
from typing import Any, Final

from laxity import names
from tests.support.services import manifest

Json = Any
Asked = tuple[str, str, bytes | None]

ODD: Final[tuple[Json, ...]] = (
    None, True, False, 0, -1, 1, 2**31, 2**53, 2**63, 2**64, 10**30, 0.5, 1e308, -1e308, 5e-324,
    "", " ", "0", "-1", "²", "٣", "9" * 5_000, "a" * 300, "\0", "\x1b[2J", "ß", "💥", "../..", "%2e",
    "null", "1e400", "2026-13-45T99:99:99Z", "9999-12-31T23:59:59Z", "P1D", "1..4096", "1,1,1", "4..1",
    "*", "${x}", "$(LAXITY_JOB)", "'; drop table jobs; --", [], [[]], [None], [1, "a"], {}, {"": ""},
    {"a": {"b": []}}, {"nvidia.com/gpu": "²"}, {"nvidia.com/gpu": -1}, {"name": "train"},
)  # fmt: skip
TEXTS: Final = (
    "1h", "90m", "1s", "10y", "2027-01-31T18:00:00Z", "hard", "soft", "best_effort", "true", "false",
    "1", "2", "1,2,4", "1..8", "40s", "continue", "stop", "m:f", '{"a": 1}', "mlp", "key",
)  # fmt: skip
EXTRAS: Final[tuple[tuple[str, Json], ...]] = (
    ("affinity", {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [1]}}),
    ("affinity", {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"x": 1}]}}),
    ("nodeSelector", {"kubernetes.io/hostname": 7}),
    ("tolerations", [{"key": 1, "operator": []}, "x"]),
    ("terminationGracePeriodSeconds", 10**20),
    ("containers", []), ("containers", [None]), ("initContainers", "x"), ("volumes", [{}]),
)  # fmt: skip
KINDS: Final = ("started", "formed", "epoch", "saved", "parked", "failed", "finished", "dance")
NAMES: Final = ("a", "b", "c", "nobody", "x" * 260, "A_b", "..", "%00", "%ff", "%F0%9F%92%A5")
VERBS: Final = ("", "/amend", "/accept", "/signal", "/explain", "/logs", "/release", "/dance")
METHODS: Final = ("GET", "POST", "POST", "POST", "DELETE", "PUT", "PATCH", "HEAD", "OPTIONS")


class Grammar:
    """An endless, seeded supply of requests. `uids` of Jobs that exist make some reports count."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.uids: list[str] = ["u"]

    def requests(self, number: int) -> Iterator[Asked]:
        kinds = (self._submission, self._submission, self._call, self._reports, self._anything)
        for _ in range(number):
            yield self.random.choice(kinds)()

    def _submission(self) -> Asked:
        body = manifest(self.random.choice(("a", "b", "c")), epochs=self.random.randint(1, 9))
        said = body["metadata"]["annotations"]
        for name in self.random.sample(
            [key for key in vars(names).values() if str(key).startswith(names.DOMAIN)], 3
        ):
            said[name] = self.random.choice(TEXTS)
        if self.random.random() < 0.3:
            field, value = self.random.choice(EXTRAS)
            body["spec"]["template"]["spec"][field] = value
        for _ in range(self.random.randint(0, 3)):
            self._twist(body)
        return "POST", self.random.choice(("/v1/jobs", "/v1/whatif")), self._written(body)

    def _reports(self) -> Asked:
        lines: list[Json] = [
            {
                "seq": number, "kind": self.random.choice(KINDS), "at": 1.8e9, "epoch": number,
                "epoch_s": 1.5, "width": 1, "error": "e", "result": 1, "metrics": {"loss": 0.1},
            }
            for number in range(self.random.randint(0, 4))
        ]  # fmt: skip
        body = {"uid": self.random.choice(self.uids), "reports": lines, "generation": 1}
        for _ in range(self.random.randint(0, 4)):
            self._twist(body)
        name = self.random.choice("abc")
        return "POST", f"/v1/jobs/default/{name}/signal", self._written(body)

    def _call(self) -> Asked:
        verb = self.random.choice(VERBS)
        path = f"/v1/jobs/default/{self.random.choice(NAMES[:4])}{verb}"
        body = {"deadline": "1h", "offer": 1}
        self._twist(body)
        query = self.random.choice(("", "", f"?tail={self._odd()}", f"?index={self._odd()}&seen=1"))
        return self.random.choice(("GET", "POST", "DELETE")), path + query, self._written(body)

    def _anything(self) -> Asked:
        name, verb = self.random.choice(NAMES), self.random.choice(VERBS)
        path = self.random.choice(
            (
                f"/v1/jobs/{self.random.choice(NAMES)}/{name}{verb}", f"/v1/decisions?limit={self._odd()}",
                f"/v1/jobs?namespace={self._odd()}", "/v1/cluster", "/metrics", "/readyz", "/docs",
                f"/{name}", "/openapi.json", "/v1/release", "/v1/jobs/", "//v1//jobs",
            )
        )  # fmt: skip
        raw = self.random.randbytes(self.random.randint(0, 60))
        body = self.random.choice((None, raw, b"{", b"[" * 5_000, b"null", b'{"a":NaN}'))
        return self.random.choice(METHODS), path, body

    def _odd(self) -> str:
        text = str(self.random.choice(ODD))[:400]
        return "".join(one if one.isascii() and one.isalnum() else f"%{ord(one) % 256:02x}" for one in text)  # fmt: skip

    def _twist(self, body: Json) -> None:
        """Put something odd in one place, take one away, or repeat one."""
        places = list(_places(body))
        if not places:
            return
        parent, key = self.random.choice(places)
        how = self.random.random()
        if how < 0.7:
            parent[key] = copy.deepcopy(self.random.choice(ODD))
        elif how < 0.85:
            del parent[key]
        else:
            parent[key] = [copy.deepcopy(parent[key])] * self.random.randint(0, 30)

    def _written(self, body: Json) -> bytes:
        text = json.dumps(body)
        if self.random.random() < 0.02:
            text = text.replace('"a"', '"\\ud800"')
        return text.encode()


def _places(value: Json) -> Iterator[tuple[Json, Any]]:
    """Every place in a JSON value where something stands: its parent and key."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, part in items:
        yield value, key
        if isinstance(part, dict | list):
            yield from _places(part)
