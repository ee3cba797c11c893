"""Text from workers and users, made safe for where a person reads it: a terminal, or a page.

A worker's error can hold anything. Printed raw, an escape sequence clears the screen, renames the
window or hides a link; put into Markdown raw, it becomes an image, a link or HTML. Addresses hold
logins, and the libraries that fail to reach one put it into their errors.
"""

import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import unquote

# Whole sequences (CSI; OSC, DCS and the like up to their end), then what is left of control
# characters, of overrides of the writing direction, and of lone surrogates, which no output takes.
_UNPRINTABLE: Final = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)"
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
# Up to the last @ of the authority; a password may hold / ? # where a database's driver takes it.
_LOGIN: Final = re.compile(r"(?<=://)(?:[^/?#\s'\"]*|[^:/?#\s'\"]*:(?!\d+[/?#])[^@\s'\"]*)@")
_SECRET_FIELD: Final = re.compile(
    r"([?&;#][\w.~-]*(?:token|secret|pass|pwd|key|auth|sig|credential)[\w.~-]*=)([^&;#\s'\"]+)",
    re.IGNORECASE,
)
_SHORTEST_SECRET: Final = 4  # less is found everywhere
_MARKUP: Final = re.compile(r"[\\`*_~#|\[\]]")


def printable(text: str) -> str:
    """The text without terminal escapes and other control characters; lines and tabs stay."""
    return _UNPRINTABLE.sub("", text)


def without_secrets(text: str, *addresses: str) -> str:
    """The text with every address in it as it may be shown: without logins, tokens and keys.

    The passwords of these addresses go wherever they stand: a library may quote a part of one.
    """
    text = _SECRET_FIELD.sub(r"\1***", _LOGIN.sub("", text))
    for secret in sorted({s for each in addresses for s in _secrets_in(each)}, key=len)[::-1]:
        text = text.replace(secret, "***")
    return text


def _secrets_in(address: str) -> Iterator[str]:
    """The password of an address, whole, decoded and in the parts that an @ leaves, and its tokens."""
    passwords = [login[0][:-1].partition(":")[2] for login in _LOGIN.finditer(address)]
    passwords += [field[2] for field in _SECRET_FIELD.finditer(address)]
    for password in passwords:
        for part in (password, *password.split("@"), unquote(password)):
            if len(part) >= _SHORTEST_SECRET:
                yield part


def markdown(text: str) -> str:
    """Markdown that shows this text, in one line, as it is: no link, image, table or HTML.

    A bare address stays one, as it leads where it says.
    """
    line = " ".join(printable(text).split())
    plain = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _MARKUP.sub(r"\\\g<0>", plain)
