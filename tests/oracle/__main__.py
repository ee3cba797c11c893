"""Says which policies decide otherwise than the golden file: `make oracle`.

`make oracle ARGS=--freeze` writes the file anew: a change of a plan is then seen in its difference.
Names of policies after it are the only ones that are looked at.
"""

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context

from laxity_scheduler.policies.registry import REGISTRY
from tests.oracle import golden
from tests.oracle.digests import whole


def main() -> int:
    """Exit status: how many policies have changed."""
    parser = argparse.ArgumentParser(prog="make oracle", description=__doc__)
    parser.add_argument("policies", nargs="*", default=[])
    parser.add_argument("--freeze", action="store_true", help="write what is found as golden")
    parser.add_argument("--processes", type=int, default=2)
    asked = parser.parse_args()
    names = asked.policies or sorted(REGISTRY)
    kept, made, changed = golden.read(), {}, 0
    with ProcessPoolExecutor(asked.processes, get_context("spawn")) as pool:
        running = {pool.submit(whole, name): name for name in names}
        for done in as_completed(running):
            name = running[done]
            made[name] = done.result()
            words = golden.difference(kept.get(name, {}), made[name])
            changed += bool(words)
            print(f"{name}: {words or 'the same'}", flush=True)  # noqa: T201 - a command
    if asked.freeze:
        golden.write(kept | made if asked.policies else made)
        return 0
    return changed


if __name__ == "__main__":
    sys.exit(main())
