"""The acting floor's commands."""

from typing import Any


def benches(app: Any) -> None:
    """Kinds of `laxity bench` that need a cluster."""
    from laxity_k8s.bench.acting_command import bench_acting

    app.command("acting")(bench_acting)
