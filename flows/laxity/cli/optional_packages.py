"""Packages that `pip install laxity` alone leaves out, and the extra that brings each.

A training image needs little: to declare a job, to run it, to log its epochs. What the service, the
reports and a cluster need comes with extras, so a command may find that a package is missing.
"""

from typing import Final

EXTRAS: Final = {
    "flow": ("httpx", "prefect"),
    "service": (
        "alembic",
        "cachetools",
        "fastapi",
        "mlflow",
        "orjson",
        "pandas",
        "prometheus_client",
        "psycopg",
        "sklearn",
        "threadpoolctl",
        "scipy",
        "sqlalchemy",
        "sqlmodel",
        "starlette",
        "uvicorn",
    ),
    "kubernetes": ("aiohttp", "httptools", "kubernetes", "uvloop"),
    "report": ("matplotlib", "numba"),
    "optuna": ("optuna",),
    "mcp": ("mcp",),
    "libraries": ("keras", "transformers"),
    "torch": ("torch",),
    "xgboost": ("xgboost",),
    "gym": ("gymnasium",),
}  # top-level modules


def install_advice(error: ModuleNotFoundError) -> str | None:
    """What to install so that this module is there; None if no extra of laxity brings it."""
    module = (error.name or "").partition(".")[0]
    extra = next((extra for extra, modules in EXTRAS.items() if module in modules), None)
    if extra is None:
        return None
    return (
        f"this needs {module}, which is not installed: pip install '.[{extra}]' in laxity's clone"
    )
