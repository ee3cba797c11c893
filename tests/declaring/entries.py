"""Says how a worker would find a function of this file, run as a script or as a module."""

import json

from laxity.declaration import entry_of


def train(training: object) -> None: ...


if __name__ == "__main__":
    print(json.dumps(entry_of(train)))  # noqa: T201
