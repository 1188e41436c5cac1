"""Renders the clients' quotas of an image as a DescribeClientQuotas answer. Decides nothing."""

from holdfast.metadata.answer_steps import AnswerSteps, Pace
from holdfast.metadata.image import MetadataImage
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.client_quotas import (
    ClientQuota,
    ClientWithQuotas,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)


def describe_client_quotas_steps(image: MetadataImage, request: DescribeClientQuotasRequest) -> AnswerSteps:
    """The answer in steps: its result is a DescribeClientQuotasResponse."""
    pace = Pace()
    asked = None if request.client_ids is None else frozenset(request.client_ids)
    rows: list[ClientWithQuotas] = []
    for name, values in image.client_quotas().items():
        if asked is not None and name not in asked:
            continue
        quotas = tuple(ClientQuota(key, value) for key, value in values.items())
        rows.append(ClientWithQuotas(name, quotas))
        if pace.is_step_over(1 + len(quotas)):
            yield
    return DescribeClientQuotasResponse(ErrorCode.NONE, None, tuple(rows))
