"""Says how a worker would find a function of this file, run as a script or as a module."""

import json

from laxity.flow.project import project_of


def train(training: object) -> None: ...


if __name__ == "__main__":
    found = project_of(train)
    print(json.dumps([found.entry, found.workdir, dict(found.env)]))  # noqa: T201
