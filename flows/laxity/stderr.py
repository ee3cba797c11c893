"""What laxity itself says in the middle of a user's output: one line, marked, on stderr."""

import sys


def say(text: str) -> None:
    sys.stderr.write(f"laxity: {text}\n")
    sys.stderr.flush()
