"""What the demo says to one of its flows: options for the deadline, parameters for the training."""

import argparse
import json
from collections.abc import Sequence
from typing import Any

from laxity.api.job_view import Json


def parse_arguments(arguments: Sequence[str] | None = None) -> tuple[Json, Json]:
    """(options for `with_qos`, parameters of the flow), from the command line as two JSON texts."""
    parser = argparse.ArgumentParser(
        description="A flow of the laxity demo; it also runs by itself."
    )
    parser.add_argument("--options", type=_parse_json, default={}, help="JSON for with_qos")
    parser.add_argument("--parameters", type=_parse_json, default={}, help="JSON for the flow")
    options = parser.parse_args(arguments)
    return options.options, options.parameters


def _parse_json(text: str) -> Any:
    value = json.loads(text)
    if not isinstance(value, dict):
        message = f"{text} is no JSON object"
        raise argparse.ArgumentTypeError(message)
    return value
