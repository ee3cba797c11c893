"""The acting floor's commands: what must be possible without a running service."""

from typing import Any


def register(app: Any) -> None:
    """Nothing yet: `laxity down` and `laxity release` speak with the service and stand with it."""


def benches(app: Any) -> None:
    """Kinds of `laxity bench` that need a cluster."""
    from laxity_k8s.bench.acting_command import bench_acting

    app.command("acting")(bench_acting)
