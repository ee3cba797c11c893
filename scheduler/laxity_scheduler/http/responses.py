"""Responses: JSON, and errors with a code for machines and a sentence for people; and their schemas."""

from collections.abc import Mapping
from typing import Any, Final

import orjson
from starlette.responses import Response

from laxity.safe_text import without_secrets


class Problem(Exception):  # noqa: N818 - what goes wrong is the caller's, not the program's
    """An answer that is an error: for machines a code, for people a sentence."""

    def __init__(self, status: int, code: str, message: str, field: str = "") -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.field = status, code, message, field

    def to_response(self) -> Response:
        """{"error": {"code", "message", "field"?}}."""
        error = {"code": self.code, "message": without_secrets(self.message)}
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


TEXT: Final = {"type": "string"}
ERROR: Final = {
    "type": "object",
    "description": "What went wrong: a code for machines, words for people, the field that is wrong.",
    "properties": {"code": TEXT, "message": TEXT, "field": TEXT},
    "required": ["code", "message"],
}
ANSWER: Final = {"type": "object", "properties": {"error": ERROR}, "required": ["error"]}


def _response_schemas(descriptions: Mapping[int, str]) -> dict[int | str, dict[str, Any]]:
    content = {"application/json": {"schema": ANSWER}}
    return {code: {"description": text, "content": content} for code, text in descriptions.items()}


ERRORS: Final = _response_schemas(
    {
        400: "The request cannot be read, or calls the service by a name that is not its own.",
        401: "There is no token, or none that this service knows.",
        403: "The token does not open this, or a page of another origin asks for a change.",
        405: "The path has no such method.",
        408: "The request was not whole within ten seconds.",
        413: "The body is longer than 1 MiB.",
        422: "A field is wrong: which, and what would do.",
        503: (
            "Not now: the service starts or stops, its policy fails, or its store or the cluster "
            "does not answer."
        ),
    }
)
JOB_ERRORS: Final = _response_schemas(
    {
        404: "There is no such job, or none that the token may see.",
        409: "The job's state does not allow it, or another job has this name or key.",
    }
)
LOAN_ERRORS: Final = _response_schemas({409: "No node is labelled for inference."})
