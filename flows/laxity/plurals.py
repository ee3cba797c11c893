"""Counts in messages: "1 worker", "2 workers"."""


def count_text(count: int, noun: str) -> str:
    """The count with its noun, which takes an s unless there is one: "1,200 lines"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
