"""A request that names more than an honest client would is refused before it costs anything."""

from typing import Any

import pytest

from holdfast.protocol.api_keys import ApiKey
from holdfast.rpc.core.request_size import ITEMS_MAX, ITEMS_MAX_OF, UNCOUNTED_BYTES, too_much

LARGE = UNCOUNTED_BYTES + 1


@pytest.mark.parametrize("message", [[["t"] * 3_999], [[[1, ["a"] * 3_994]], 2]])
def test_what_clients_ask_for_is_not_too_much(message: Any) -> None:
    assert too_much(ApiKey.METADATA, message, LARGE) is None


@pytest.mark.parametrize(
    ("api_key", "message"),
    [
        (ApiKey.METADATA, [["t"] * 4_000]),
        (ApiKey.METADATA, [[["t"]] * 2_000]),
        (ApiKey.FETCH, [[[1, 2, 3, 4, 5]] * 10_000]),
    ],
)
def test_more_is_refused_with_the_limit(api_key: ApiKey, message: Any) -> None:
    text = too_much(api_key, message, LARGE)
    assert text is not None
    assert str(ITEMS_MAX_OF.get(api_key, ITEMS_MAX)) in text


def test_a_small_request_is_not_counted() -> None:
    assert too_much(ApiKey.METADATA, [[[]] * 8_000], UNCOUNTED_BYTES) is None
