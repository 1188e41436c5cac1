"""ApiVersions (18): which versions of which RPC a node speaks. Its own encoding never changes."""

from holdfast.protocol.schema.fields import array_of, field, int16, int32, message, nullable, sentence, string


@message
class ApiVersionsRequest:
    """First request of every connection."""

    software: str = field(string, "Name and version of the client, for logs.")


@message
class ApiVersionRange:
    """Supported versions of one RPC, both ends inclusive."""

    api_key: int = field(int16, "RPC.")
    min_version: int = field(int16, "Oldest.")
    max_version: int = field(int16, "Newest.")


@message
class ApiVersionsResponse:
    """Everything this listener serves."""

    error_code: int = field(int16, "NONE.")
    error_message: str | None = field(nullable(sentence), "What to do about the error.")
    node_id: int = field(int32, "Who answers.")
    apis: tuple[ApiVersionRange, ...] = field(array_of(ApiVersionRange), "By key.")
