"""Text from workers and users, made safe for where a person reads it: a terminal, or a page.

A worker's error can hold anything. Printed raw, an escape sequence clears the screen, renames the
window or hides a link; put into Markdown raw, it becomes an image, a link or HTML.
"""

import re
from typing import Final

# Whole sequences (CSI; OSC, DCS and the like up to their end), then what is left of control
# characters, of overrides of the writing direction, and of lone surrogates, which no output takes.
_UNPRINTABLE: Final = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)"
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
# Up to the last @ of the authority; a password may hold / ? # where a database's driver takes it.
_USERINFO: Final = re.compile(r"(?<=://)(?:[^/?#\s'\"]*|[^:/?#\s'\"]*:(?!\d+[/?#])[^@\s'\"]*)@")
_MARKUP: Final = re.compile(r"[\\`*_~#|\[\]]")


def printable(text: str) -> str:
    """The text without terminal escapes and other control characters; lines and tabs stay."""
    return _UNPRINTABLE.sub("", text)


def without_secrets(text: str) -> str:
    """The text with every address in it as it may be shown: without who logs in there, and how."""
    return _USERINFO.sub("", text)


def markdown(text: str) -> str:
    """Markdown that shows this text, in one line, as it is: no link, image, table or HTML.

    A bare address stays one, as it leads where it says.
    """
    line = " ".join(printable(text).split())
    plain = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _MARKUP.sub(r"\\\g<0>", plain)
