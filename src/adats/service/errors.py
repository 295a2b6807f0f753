"""What can go wrong in the service, and the HTTP code of each."""


class ServiceError(Exception):
    """An answer that is not a success. `field` is where in the request, if that is known."""

    field: str | None = None


class Refusal(ServiceError):
    """An operation that cannot be carried out; it was refused before it changed anything."""


class Invalid(Refusal):
    """What the user gave cannot be taken: in which field, and why."""

    def __init__(self, field: str | None, why: str) -> None:
        super().__init__(why)
        self.field = field


class NotFound(Refusal):
    """There is no such experiment, task, decision or arm, or it is another tenant's."""


class Conflict(Refusal):
    """This contradicts what is there, such as an earlier reward."""


class Busy(ServiceError):
    """Too many requests are waiting."""


class StoreError(ServiceError):
    """The store cannot be written or read now: a full disk, a lock. Nothing was changed."""


class DamagedStore(ServiceError):
    """What is in the store cannot be right. It is left as it is."""


class Again(ServiceError):
    """Others were in the way: nothing has happened, and it can be done again at once."""


class Held(Again):
    """The same, but somebody holds what it needs, maybe for long."""


class OutcomeUnknown(ServiceError):
    """Whether it was done cannot be told before the store can be reached again."""


class Unauthorized(ServiceError):
    """A key is missing, or not valid."""


class Forbidden(ServiceError):
    """This request is not for whoever sends it."""


class CutOff(ServiceError):
    """The connection was closed before the request was whole."""


class TooLarge(ServiceError):
    """A body with too many bytes."""


class NotJson(ServiceError):
    """A body that is not sent as JSON."""


STATUS: dict[type[Exception], int] = {
    CutOff: 400,
    Unauthorized: 401,
    Forbidden: 403,
    NotFound: 404,
    Conflict: 409,
    TooLarge: 413,
    NotJson: 415,
    Invalid: 422,
    Busy: 429,
    StoreError: 503,
    DamagedStore: 503,
    Again: 503,
    OutcomeUnknown: 503,
}
FAULT = 500  # of what is not in the table


def status_of(error: Exception) -> int:
    return STATUS.get(type(error), FAULT)


def text_of(error: Exception) -> str:
    """What a client may know of an error."""
    if isinstance(error, StoreError):
        return f"the store cannot be written now: {error}"
    if status_of(error) == FAULT:
        return "this is a fault of the service; its log says more"
    return str(error)


def refusal(error: ServiceError) -> tuple[int, str, str | None]:
    """Code, text and field, for one of several that are answered alone."""
    return status_of(error), text_of(error), error.field
