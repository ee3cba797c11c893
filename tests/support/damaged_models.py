"""Files of learned policies that a disk, a network or a person has damaged, each in its own way."""

import json
import random
import struct
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Any, Final
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

import numpy as np

from laxity_scheduler.learned.weights_file import MOST_BYTES, SHIPPED

WHOLE: Final = SHIPPED.read_bytes()


def damaged(seed: int, body: bytes = WHOLE) -> bytes:
    """The file with one to three other bytes, drawn by the seed."""
    draw = random.Random(seed)
    content = bytearray(body)
    for _ in range(draw.randint(1, 3)):
        place = draw.randrange(len(content))
        content[place] = (content[place] + draw.randrange(1, 256)) % 256
    return bytes(content)


def raising(kind: type[BaseException], read: Callable[[bytes], object]) -> bytes:
    """A file of two or three bytes damaged, on which `read` raises this, unguarded."""
    for seed in range(20_000):
        body = damaged(seed)
        try:
            read(body)
        except kind:
            return body
        except Exception:  # noqa: BLE001, S112 - another kind of damage
            continue
    raise AssertionError(f"no damage raises {kind.__name__}")


def members(body: bytes = WHOLE) -> dict[str, bytes]:
    with ZipFile(BytesIO(body)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def packed(content: dict[str, bytes], compression: int = ZIP_DEFLATED) -> bytes:
    made = BytesIO()
    with ZipFile(made, "w", compression) as archive:
        for name, each in content.items():
            archive.writestr(name, each)
    return made.getvalue()


def with_arrays(**arrays: Any) -> bytes:
    """The file that ships, with other arrays in it."""
    with np.load(BytesIO(WHOLE)) as file:
        kept = {name: file[name] for name in file.files}
    made = BytesIO()
    np.savez(made, **(kept | arrays))
    return made.getvalue()


def with_header(change: Callable[[dict[str, Any]], Any]) -> bytes:
    with np.load(BytesIO(WHOLE)) as file:
        header = json.loads(str(file["header"]))
    return with_arrays(header=json.dumps(change(header)))


def with_weight(value: float) -> bytes:
    with np.load(BytesIO(WHOLE)) as file:
        weight = file["weight_1"].copy()
    weight[3, 5] = value
    return with_arrays(weight_1=weight)


def with_flag(bit: int) -> bytes:
    """With a flag of each member set in the directory at the file's end, and at the member."""
    content = bytearray(WHOLE)
    for mark, offset in ((b"PK\x01\x02", 8), (b"PK\x03\x04", 6)):
        for place in _places(bytes(content), mark):
            content[place + offset] |= bit
    return bytes(content)


def with_method(number: int) -> bytes:
    """Compressed, it says, by a method that nobody has."""
    content = bytearray(WHOLE)
    for place in _places(WHOLE, b"PK\x01\x02"):
        content[place + 10 : place + 12] = struct.pack("<H", number)
    for place in _places(WHOLE, b"PK\x03\x04"):
        content[place + 8 : place + 10] = struct.pack("<H", number)
    return bytes(content)


def with_shape(shape: str) -> bytes:
    """One weight says that it has this shape."""
    content = members()
    array = content["weight_0.npy"]
    start = array.index(b"'shape': (") + len(b"'shape': ")
    end = array.index(b")", start) + 1
    text = shape.encode()
    room = array.index(b"\n")
    head = array[:start] + text + array[end:room]
    content["weight_0.npy"] = head[:room].ljust(room) + array[room:]
    return packed(content, ZIP_STORED)


def _places(content: bytes, mark: bytes) -> Iterator[int]:
    place = content.find(mark)
    while place >= 0:
        yield place
        place = content.find(mark, place + 1)


KINDS: Final[dict[str, Callable[[], bytes]]] = {
    "empty": lambda: b"",
    "a text": lambda: b"no weights",
    "cut short": lambda: WHOLE[:500],
    "without its end": lambda: WHOLE[: len(WHOLE) - 30],
    "bytes within its compressed arrays": lambda: WHOLE[:5_000] + b"\xff" * 40 + WHOLE[5_040:],
    "an encrypted flag": lambda: with_flag(1),
    "a method of compression that nobody has": lambda: with_method(77),
    "a header as deep as a stack": lambda: with_arrays(header="[" * 200_000),
    "a header that is a list": lambda: with_arrays(header="[1, 2]"),
    "a header that is no JSON": lambda: with_arrays(header="{"),
    "trained on a list": lambda: with_header(lambda header: header | {"trained_on": [1]}),
    "other features": lambda: with_header(lambda header: header | {"features": 7}),
    "another version": lambda: with_header(lambda header: header | {"version": 9}),
    "a weight of 1e308": lambda: with_weight(1e308),
    "a weight that is no number": lambda: with_weight(np.nan),
    "an infinite weight": lambda: with_weight(np.inf),
    "weights that are words": lambda: with_arrays(weight_0=np.array([["a"]])),
    "pickled objects": lambda: with_arrays(weight_0=np.array([{"a": 1}], dtype=object)),
    "a shape beyond all memory": lambda: with_shape("(9999999999999, 32)"),
    "a shape that is no tuple": lambda: with_shape("(((((((((((1)"),
    "more than may be unpacked": lambda: with_arrays(more=np.zeros(MOST_BYTES // 8 + 1)),
    "larger than may be read": lambda: WHOLE + b"\0" * MOST_BYTES,
}
