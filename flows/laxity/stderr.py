"""What laxity itself says in the middle of a user's output: one line, marked, on stderr."""

import sys

from laxity.safe_text import without_secrets


def say(text: str) -> None:
    sys.stderr.write(f"laxity: {without_secrets(text)}\n")
    sys.stderr.flush()
