"""UnregisterBroker (64): a broker is gone for good (R28). Brokers forward it to the active controller."""

from holdfast.protocol.schema.fields import field, int16, int32, message, nullable, sentence


@message
class UnregisterBrokerRequest:
    """Answered when the records are committed."""

    broker_id: int = field(int32, "Broker.")


@message
class UnregisterBrokerResponse:
    """The broker's registration is gone, and it is in no set of any partition."""

    error_code: int = field(int16, "NONE, BROKER_ID_NOT_REGISTERED, NOT_CONTROLLER, ...")
    error_message: str | None = field(nullable(sentence), "What to do about the error.")
