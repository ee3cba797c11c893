"""What may be chosen: the methods that submit a successor, the models behind them, logs and starts.

Without imports, as the command line shows these names before anything else is loaded.
"""

from typing import Final, Literal

LogFormat = Literal["mirage", "swf", "sacct"]
Start = Literal["empty", "running"]

LOG_FORMATS: Final[tuple[LogFormat, ...]] = ("mirage", "swf", "sacct")
STARTS: Final[tuple[Start, ...]] = ("running", "empty")
METHODS_WITHOUT_MODEL: Final = ("reactive", "average", "average_now", "slurm_estimate")

POINTS: Final = ("forest", "xgboost", "boosting")  # predict hours of difference
NETWORKS: Final = ("transformer", "mixture")  # the same
BASES: Final = {"transformer_pg": "transformer", "mixture_pg": "mixture"}  # what a policy rests on
POLICIES: Final = ("dqn", *BASES)  # choose between waiting and submitting
CALIBRATED: Final = "calibrated"  # a distribution of the wait
MODELS: Final = (*POINTS, *NETWORKS, *POLICIES, CALIBRATED)


def check_choice(value: str, choices: tuple[str, ...], name: str) -> None:
    """ValueError that lists the choices."""
    if value not in choices:
        raise ValueError(f"{name} {value!r}: one of {', '.join(choices)}")
