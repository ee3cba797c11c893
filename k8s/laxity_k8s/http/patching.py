"""Patches over one session: a bounded number at a time, those of one object in turn."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence

import orjson

from laxity_k8s.cluster_api import ApiError, Patch, PatchResult
from laxity_k8s.http.paths import object_path
from laxity_k8s.http.session import FIELD_MANAGER, STRATEGIC_PATCH, Allowed, ApiSession


async def send_patch(session: ApiSession, patch: Patch, allowed: Allowed = lambda: True) -> bytes:
    """The new object as JSON text; ApiError as `ApiSession.call_bytes`."""
    return await session.call_bytes(
        "PATCH",
        object_path(patch.kind, patch.id, patch.subresource),
        query=FIELD_MANAGER,
        body=patch.body,
        content_type=STRATEGIC_PATCH,
        allowed=allowed,
    )


async def patch_all(
    session: ApiSession, patches: Sequence[Patch], allowed: Allowed, *, in_flight: int
) -> Sequence[PatchResult]:
    """Outcomes in the order of the patches."""
    slots = asyncio.Semaphore(in_flight)
    outcomes: dict[int, PatchResult] = {}
    numbers_of: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for number, patch in enumerate(patches):
        numbers_of[patch.kind, patch.id].append(number)

    async def send_in_turn(numbers: Sequence[int]) -> None:
        for number in numbers:
            async with slots:
                outcomes[number] = await _send_one(session, patches[number], allowed)

    await asyncio.gather(*map(send_in_turn, numbers_of.values()))
    return [outcomes[number] for number in range(len(patches))]


async def _send_one(session: ApiSession, patch: Patch, allowed: Allowed) -> PatchResult:
    try:
        return PatchResult(patch, 200, orjson.loads(await send_patch(session, patch, allowed)))
    except ApiError as error:
        return PatchResult(patch, error.status, message=str(error))
    except orjson.JSONDecodeError as error:  # of somebody in between: it may have landed
        return PatchResult(patch, 0, message=f"the answer is no JSON: {error}")
