"""A worker's log on this machine: its beginning and its end, with the size of what lies between.

    job.log        what was written last
    job.log.1      up to 5 MiB before that
    job.log.head   the first 64 KiB, once there are two files before
    job.log.begun  how many bytes were written before job.log

`laxity logs --follow` reads the size between from the text, and so knows what it has not printed.
"""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from laxity.safe_text import printable

if TYPE_CHECKING:
    from laxity.api.client import Client

_LEFT_OUT: Final = (
    "... {count:,} bytes left out: a log keeps its first 64 KiB and its last 5 MiB ...\n"
)
_GAP: Final = re.compile(r"^\.\.\. ([\d,]+) bytes left out: a log keeps .*\n", re.MULTILINE)
BEGUN_ANEW: Final = "... the log was begun anew ...\n"


def read_log(path: Path) -> str:
    """All that is kept of a log; "" if there is none."""
    head, older, current = (_read_part(path, suffix) for suffix in (".head", ".1", ""))
    rest, begun = older + current, int(_read_part(path, ".begun") or b"0")
    start = begun - len(older)
    if start <= len(head):
        return (head[:start] + rest).decode(errors="replace")
    cut = rest.find(b"\n") + 1  # its first line has lost its beginning
    gap = _LEFT_OUT.format(count=start + cut - len(head))
    return head.decode(errors="replace") + gap + rest[cut:].decode(errors="replace")


def text_after(text: str, printed: int) -> tuple[str, int]:
    """What follows the bytes that are printed, with a line about those that are lost; and its end."""
    gap = _GAP.search(text)
    head, rest = (text[: gap.start()], text[gap.end() :]) if gap else (text, "")
    start = _count_bytes(head) + (int(gap[1].replace(",", "")) if gap else 0)
    end = start + _count_bytes(rest)
    if end < printed:
        return BEGUN_ANEW + text, end
    if not gap or printed < _count_bytes(head):
        return _cut(text, printed), end
    lost = _LEFT_OUT.format(count=start - printed) if printed < start else ""
    return lost + _cut(rest, max(0, printed - start)), end


def last_lines(client: "Client", job_id: str, many: int) -> str:
    """What worker 0 wrote last; "" where its log cannot be read any more."""
    from laxity.api.client import ServiceError

    try:
        return printable(client.logs(job_id, tail=many)).rstrip()
    except ServiceError:
        return ""


def _read_part(path: Path, suffix: str) -> bytes:
    part = path.with_name(path.name + suffix)
    return part.read_bytes() if part.exists() else b""


def _count_bytes(text: str) -> int:
    """As they were written: a byte that is no UTF-8 is shown as one character of three."""
    return len(text.encode()) - 2 * text.count("\N{REPLACEMENT CHARACTER}")


def _cut(text: str, count: int) -> str:
    """The text without its first bytes."""
    if "\N{REPLACEMENT CHARACTER}" not in text:
        return text.encode()[count:].decode(errors="replace")
    kept = 0
    for number, character in enumerate(text):
        if kept >= count:
            return text[number:]
        kept += _count_bytes(character)
    return ""
