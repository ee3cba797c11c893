"""The workers of one job as one group: worker 0 leads, the others do what it says at each boundary.

Ranks are the Job's indexes, 0 to width - 1 without gaps. Whoever connects waits until the leader
takes it in, at the end of an epoch. When a worker of the group is gone, the epoch in flight is void
for all: averages do nothing until its end, then the group forms anew from the last checkpoint.
"""

import hmac
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from laxity.worker.group import messages, rendezvous
from laxity.worker.group.averaging import mean_by_weight
from laxity.worker.group.messages import Header
from laxity.worker.group.rendezvous import Rendezvous

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Arrays = Sequence[NDArray[Any]]

HELLO_S: Final = 5.0
LOOK_S: Final = 0.2
HELLO_BYTES: Final = 4096


class GroupError(RuntimeError):
    """The workers do not do the same: they average different things, or at different times."""


class GroupServer:
    """Worker 0's side. `width` workers are in the group; `void` says that one of them is gone."""

    def __init__(self, folder: Path, *, uid: str = "", host: str = "") -> None:
        self.width = 1
        self.void = False
        self.round = ""  # names the latest forming of the group, on all its workers alike
        self._rounds = 0
        self._told_void = False
        self._folder = folder
        self._members: dict[int, socket.socket] = {}
        self._waiting: dict[int, socket.socket] = {}
        self._came = threading.Condition()
        self._door = rendezvous.open_listener(host)
        self._place = rendezvous.next_one(
            folder, uid=uid, host=host, port=self._door.getsockname()[1]
        )
        self._place.write(folder)
        threading.Thread(target=self._open_door, name="laxity-door", daemon=True).start()

    def reachable(self) -> int:
        """How many workers could form a group now, counted from index 0 without a gap."""
        with self._came:
            for index in [i for i, peer in self._waiting.items() if messages.is_closed(peer)]:
                messages.hang_up(self._waiting.pop(index))
            here = self._members.keys() | self._waiting.keys()
        return next(width for width in range(1, len(here) + 2) if width not in here)

    def wait_for(self, wanted: Callable[[], int], *, at_most_s: float) -> None:
        """Wait until so many workers can form a group; what is wanted may change meanwhile."""
        until = time.monotonic() + at_most_s
        while self.reachable() < wanted() and (left := until - time.monotonic()) > 0:
            with self._came:
                self._came.wait(min(left, 5 * LOOK_S))

    def launch(self, width: int, *, host: str, port: int) -> None:
        """Take in indexes 1 to width - 1 and tell them where their processes meet; `void` if one is gone."""
        with self._came:
            joined = {index: self._waiting.pop(index, None) for index in range(1, width)}
        self._members = {index: peer for index, peer in joined.items() if peer is not None}
        self.width, self.void = width, len(self._members) < width - 1
        for index in sorted(self._members):
            self._send_header(index, {"do": "launch", "width": width, "host": host, "port": port})

    def disband(self) -> None:
        """All workers of the group are to begin anew."""
        for index in sorted(self._members):
            self._send_header(index, {"do": "anew"})

    def form(self, width: int, *, epoch: int, load: bool) -> None:
        """Take in indexes 1 to width - 1; the rest waits. `load`: all of them, not only new ones."""
        with self._came:
            joined = self._members | self._waiting
            fresh = set(self._waiting)
            self._members = {index: joined[index] for index in joined if index < width}
            self._waiting = {index: joined[index] for index in joined if index >= width}
            leaving = [peer for index, peer in self._waiting.items() if index not in fresh]
        self.width, self.void, self._told_void = width, False, False
        self._rounds += 1
        self.round = f"{self._place.generation}-{self._rounds}"
        for index in sorted(self._members):
            message = {"do": "form", "width": width, "epoch": epoch, "round": self.round}
            self._send_header(index, {**message, "load": load or index in fresh})
        for peer in leaving:
            with suppress(OSError):
                messages.send_message(peer, {"do": "wait"})

    def gather_boundary(self) -> int:
        """Wait for all at the epoch's end; the bytes that the others have read."""
        return sum(int(header["bytes"]) for _, header, _ in self._gather_messages("boundary"))

    def go(self) -> None:
        """Everybody goes on with the next epoch, unchanged."""
        for index in sorted(self._members):
            self._send_header(index, {"do": "go"})

    def average(self, arrays: "Arrays", names: Sequence[str], weight: float) -> "Arrays | None":
        """The means over all workers, or None in a void epoch."""
        if self.void and self._told_void:
            return None
        others = self._gather_messages("average")
        if self.void:
            self._refuse_average()
            return None
        for index, header, theirs in others:
            _same_shapes(arrays, theirs, names=names, index=index, header=header)
        weights = [weight, *(float(header["weight"]) for _, header, _ in others)]
        if sum(weights) <= 0:
            raise GroupError(f"average() needs weights with a sum above 0, not {weights}")
        parts = zip(arrays, *(theirs for _, _, theirs in others), strict=True)
        means = [mean_by_weight(part, weights) for part in parts]
        for index in sorted(self._members):
            self._send_header(index, {"do": "mean"}, means)
        return means

    def is_superseded(self) -> bool:
        """Whether another worker 0 has begun in this folder since.

        A cluster may start a second one while the first lives: its node was lost and is not dead, or
        a job controller has not seen the pod that it made. Of the two the later one goes on.
        """
        now = Rendezvous.read(self._folder)
        if now is None or now.uid != self._place.uid:
            return False
        return now.token != self._place.token and now.generation >= self._place.generation

    def end(self) -> None:
        """The training is over, also for those who never got in or come late."""
        self._place = replace(self._place, ended=True)
        self._place.write(self._folder)
        with self._came:
            peers = [*self._members.values(), *self._waiting.values()]
            self._members, self._waiting = {}, {}
        for peer in peers:
            with suppress(OSError):
                messages.send_message(peer, {"do": "end"})
            messages.hang_up(peer)
        messages.hang_up(self._door)

    def anyone_gone(self) -> bool:
        """Whether a worker of the group has hung up."""
        return self.void or any(messages.is_closed(peer) for peer in self._members.values())

    def _refuse_average(self) -> None:
        """Those who wait in average() hear that the epoch is void, and ask no more in it."""
        self._told_void = True
        for index in sorted(self._members):
            self._send_header(index, {"do": "void"})

    def _gather_messages(self, op: str) -> "list[tuple[int, Header, Arrays]]":
        got: list[tuple[int, Header, Arrays]] = []
        for index in sorted(self._members):
            try:
                header, arrays = messages.receive_message(self._members[index])
                while self.void and header["op"] == "average" != op:  # it has not heard yet
                    messages.send_message(self._members[index], {"do": "void"})
                    header, arrays = messages.receive_message(self._members[index])
            except OSError:
                self._lose_member(index)
                continue
            if header["op"] != op:
                raise GroupError(
                    f"worker {index} is in {header['op']} while worker 0 is in {op}: all workers "
                    "must call average() equally often in an epoch"
                )
            got.append((index, header, arrays))
        return got

    def _send_header(self, index: int, words: Header, arrays: "Arrays" = ()) -> None:
        peer = self._members.get(index)
        if peer is None:
            return
        try:
            messages.send_message(peer, words, arrays)
        except OSError:
            self._lose_member(index)

    def _lose_member(self, index: int) -> None:
        self.void = True
        with self._came:
            peer = self._members.pop(index, None)
        if peer is not None:
            messages.hang_up(peer)

    def _open_door(self) -> None:
        while True:
            try:
                peer, _ = self._door.accept()
            except OSError:
                return
            threading.Thread(target=self._greet_member, args=(peer,), daemon=True).start()

    def _greet_member(self, peer: socket.socket) -> None:
        """Let in who knows the token; an index that comes again replaces its old connection."""
        try:
            peer.settimeout(HELLO_S)
            messages.enable_keepalive(peer)
            hello = messages.receive_header(peer, most_bytes=HELLO_BYTES)
            index = int(hello["index"])
            if index < 1 or not hmac.compare_digest(str(hello["token"]), self._place.token):
                raise ConnectionError("a stranger")
            peer.settimeout(None)
        except (OSError, ValueError, KeyError, TypeError):
            messages.hang_up(peer)
            return
        with self._came:
            old = self._waiting.pop(index, None)
            self._waiting[index] = peer
            for before in (old, self._members.get(index)):
                if before is not None:
                    with suppress(OSError):
                        before.shutdown(socket.SHUT_RDWR)
            self._came.notify_all()
        if self._place.ended:
            messages.hang_up(peer)  # it finds in the folder that all is over


class GroupClient:
    """Any other worker's side: it never decides anything."""

    def __init__(self, folder: Path, *, index: int, uid: str = "") -> None:
        self.void = False
        self._folder = folder
        self._index = index
        self._uid = uid
        self._leader: socket.socket | None = None
        self._token = ""  # of the leader that it has met last

    def await_another(self) -> bool:
        """Wait until a leader has begun that this worker has not met; False if the training is over."""
        while True:
            place = Rendezvous.read(self._folder)
            if place is not None and place.uid == self._uid:
                if place.ended:
                    return False
                if place.token != self._token:
                    return True
            time.sleep(LOOK_S)

    def join(self) -> Header:
        """Find the leader, however long that takes, and wait until it says what to do."""
        self._hang_up()
        while True:
            place = Rendezvous.read(self._folder)
            if place is not None and place.uid == self._uid:
                try:
                    self._leader = self._connect_leader(place)
                    return self.wait()
                except (OSError, ValueError):
                    self._hang_up()
                if place.ended:
                    return {"do": "end"}
            time.sleep(LOOK_S)

    def boundary(self, *, bytes_read: int) -> Header:
        """Say that the epoch is done; what the leader says to do. OSError when it is gone."""
        messages.send_message(self._leader_socket(), {"op": "boundary", "bytes": bytes_read})
        return self.wait()

    def wait(self) -> Header:
        """What the leader says next. OSError when it is gone."""
        header, _ = messages.receive_message(self._leader_socket())
        self.void = False
        if header["do"] == "end":
            self._hang_up()
        return header

    def average(self, arrays: "Arrays", names: Sequence[str], weight: float) -> "Arrays | None":
        """The means over all workers, or None in a void epoch."""
        if self.void:
            return None
        try:
            message = {"op": "average", "weight": weight, "names": list(names)}
            messages.send_message(self._leader_socket(), message, arrays)
            header, means = messages.receive_message(self._leader_socket())
        except OSError:
            self._hang_up()
            header, means = {"do": "void"}, []
        self.void = header["do"] == "void"
        return None if self.void else means

    def anyone_gone(self) -> bool:
        """Whether the leader has hung up."""
        return self.void or self._leader is None or messages.is_closed(self._leader)

    def _connect_leader(self, place: Rendezvous) -> socket.socket:
        leader = socket.create_connection((place.host, place.port), timeout=HELLO_S)
        leader.settimeout(None)
        messages.enable_keepalive(leader)
        messages.send_message(leader, {"index": self._index, "token": place.token})
        self._token = place.token
        return leader

    def _leader_socket(self) -> socket.socket:
        if self._leader is None:
            raise ConnectionError("worker 0 is gone")
        return self._leader

    def _hang_up(self) -> None:
        if self._leader is not None:
            messages.hang_up(self._leader)
        self._leader = None


def _same_shapes(
    mine: "Arrays", theirs: "Arrays", *, names: Sequence[str], index: int, header: Header
) -> None:
    if list(names) != header.get("names"):
        raise GroupError(
            f"average() was given {list(names)} on worker 0 and {header.get('names')} on worker "
            f"{index}: all workers must average the same things"
        )
    for name, own, other in zip(names, mine, theirs, strict=True):
        if (own.shape, own.dtype) != (other.shape, other.dtype):
            raise GroupError(
                f"average(): {name or 'the array'} is {own.dtype}{own.shape} on worker 0 and "
                f"{other.dtype}{other.shape} on worker {index}: average the model, not its data"
            )
