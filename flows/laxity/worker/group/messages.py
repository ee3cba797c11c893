"""Messages between the workers of one job: a JSON header, then arrays as raw bytes.

Nothing that is executed crosses the wire, and a stranger's first message is small or refused.
"""

import json
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Arrays = Sequence[NDArray[Any]]

Header = dict[str, Any]
HEADER_BYTES: Final = 16 << 20
_LENGTH: Final = struct.Struct("!I")


def send_message(peer: socket.socket, header: Header, arrays: "Arrays" = ()) -> None:
    """Write one message. Arrays go as they lie in memory, in C order."""
    described = [(array.dtype.str, array.shape) for array in arrays]
    text = json.dumps({**header, "arrays": described}).encode()
    peer.sendall(_LENGTH.pack(len(text)) + text)
    for array in arrays:
        peer.sendall(array.tobytes() if not array.flags.c_contiguous else _bytes_of(array))


def receive_message(peer: socket.socket) -> "tuple[Header, list[NDArray[Any]]]":
    """Read one message. A closed connection is a ConnectionError."""
    header = receive_header(peer)
    return header, [_read_array(peer, kind, shape) for kind, shape in header.pop("arrays", [])]


def receive_header(peer: socket.socket, *, most_bytes: int = HEADER_BYTES) -> Header:
    """Read a header alone: all that is taken from somebody who has not shown the token yet."""
    (length,) = _LENGTH.unpack(_read_exactly(peer, _LENGTH.size))
    if length > most_bytes:
        raise ConnectionError(f"a header of {length} bytes; at most {most_bytes} are taken")
    try:
        header = json.loads(_read_exactly(peer, length))
    except ValueError as error:
        raise ConnectionError("a header is not JSON") from error
    if not isinstance(header, dict):
        raise ConnectionError("a header is not a JSON object")
    return header


def enable_keepalive(peer: socket.socket) -> None:
    """Notice within half a minute when the machine at the other end is gone without a word."""
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, option):
            peer.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def is_closed(peer: socket.socket) -> bool:
    """Whether the other end has hung up (it says nothing unasked, so silence is life)."""
    try:
        return peer.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def hang_up(peer: socket.socket) -> None:
    """Close both ways; the other end and anybody who waits here notice at once."""
    with suppress(OSError):
        peer.shutdown(socket.SHUT_RDWR)
    peer.close()


def _read_exactly(peer: socket.socket, count: int) -> bytearray:
    buffer = bytearray(count)
    view, got = memoryview(buffer), 0
    while got < count:
        received = peer.recv_into(view[got:])
        if not received:
            raise ConnectionError("the other worker hung up")
        got += received
    return buffer


def _read_array(peer: socket.socket, kind: str, shape: Sequence[int]) -> "NDArray[Any]":
    import numpy as np

    dtype = np.dtype(kind)
    if dtype.hasobject:
        raise ConnectionError("an array of Python objects is not taken")
    count = dtype.itemsize * int(np.prod(shape, dtype=np.int64))
    return np.frombuffer(_read_exactly(peer, count), dtype=dtype).reshape(shape)


def _bytes_of(array: "NDArray[Any]") -> memoryview:
    return array.reshape(-1).view("u1").data if array.size else memoryview(b"")
