"""DescribeClientQuotas (48): how fast clients may send and fetch. IncrementalAlterConfigs sets it."""

from holdfast.protocol.schema.fields import (
    array,
    array_of,
    field,
    int16,
    int64,
    message,
    nullable,
    sentence,
    string,
)


@message
class DescribeClientQuotasRequest:
    """Any node answers from its image."""

    client_ids: tuple[str, ...] | None = field(
        nullable(array(string)), "Only these, an empty one for the default of all clients; null: every one."
    )


@message
class ClientQuota:
    """One limit."""

    name: str = field(string, "producer_byte_rate or consumer_byte_rate.")
    value: int = field(int64, "Bytes a second, at each broker.")


@message
class ClientWithQuotas:
    """What was set for a client."""

    client_id: str = field(string, "Client id, empty for the default of all clients.")
    quotas: tuple[ClientQuota, ...] = field(array_of(ClientQuota), "By name, at least one.")


@message
class DescribeClientQuotasResponse:
    """Clients that have a limit of their own, and the default; others are not there."""

    error_code: int = field(int16, "NONE.")
    error_message: str | None = field(nullable(sentence), "What to do about the error.")
    clients: tuple[ClientWithQuotas, ...] = field(array_of(ClientWithQuotas), "By client id.")
