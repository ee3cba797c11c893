"""Responses: JSON, and errors with a code for machines and a sentence for people."""

from typing import Any

import orjson
from starlette.responses import Response


class Problem(Exception):  # noqa: N818 - what goes wrong is the caller's, not the program's
    """An answer that is an error: for machines a code, for people a sentence."""

    def __init__(self, status: int, code: str, message: str, field: str = "") -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.field = status, code, message, field

    def to_response(self) -> Response:
        """{"error": {"code", "message", "field"?}}."""
        error = {"code": self.code, "message": self.message}
        error |= {"field": self.field} if self.field else {}
        headers = {"WWW-Authenticate": "Bearer"} if self.status == 401 else None
        return JsonResponse({"error": error}, status_code=self.status, headers=headers)


class JsonResponse(Response):
    """JSON; infinity and NaN, which JSON does not have, become null."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return orjson.dumps(content)


def problem_response(status: int, code: str, message: str, field: str = "") -> Response:
    """The response of a Problem with these fields."""
    return Problem(status, code, message, field).to_response()
