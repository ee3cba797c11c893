"""The golden file: what each policy decided when it was last frozen."""

import json
from itertools import zip_longest
from pathlib import Path
from typing import Final

FILE: Final = Path(__file__).with_name("golden.json")
Digests = dict[str, str]


def read() -> dict[str, Digests]:
    known: dict[str, Digests] = json.loads(FILE.read_text())
    return known


def write(digests: dict[str, Digests]) -> None:
    FILE.write_text(json.dumps(digests, indent=1, sort_keys=True) + "\n")


def difference(kept: Digests, made: Digests) -> str:
    """In words what is otherwise, by the seeds of states; "" if nothing is."""
    parts = [part for part in sorted(kept | made) if kept.get(part) != made.get(part)]
    words = [part for part in parts if part != "states"]
    if "states" in parts:
        words.insert(0, _states(kept.get("states", ""), made.get("states", "")))
    return "; ".join(words)


def _states(kept: str, made: str) -> str:
    pairs = enumerate(zip_longest(kept.split(), made.split()))
    seeds = [str(seed) for seed, (before, now) in pairs if before != now]
    some = ", ".join(seeds[:5])
    return f"{len(seeds)} states, among them {some}" if seeds else "states"
