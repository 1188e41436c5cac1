"""How fast clients may send and fetch records: Kafka's quotas `producer_byte_rate` and `consumer_byte_rate`.

Owns the rates of clients that have a limit, measured as Kafka does: over `quota.window.num` windows. A client
above its limit is not refused; its connection rests until the rate is back at the limit. A client that names
itself nothing, or nothing known, has the limit of the default.
"""

from collections.abc import Mapping

from holdfast.broker.core.byte_rate import ByteRate, RateWindows
from holdfast.metadata.image import DEFAULT_CLIENT
from holdfast.protocol.envelope import CLIENT_ID_MAX

#: Clients whose rates are measured one by one; further ones have one rate together. Ids prove nothing, and a
#: new one for each connection costs a client no effort.
CLIENTS_MAX = 10_000
#: The longest rest, also of longer windows: a peer that is gone meanwhile is not noticed.
REST_MS_MAX = 60_000


class ByteRateQuota:
    """One of the two quotas, of all clients."""

    def __init__(self, name: str, windows: RateWindows) -> None:
        #: its key
        self.name = name
        #: some client has a limit: nothing is to be counted while none has
        self.is_on = False
        #: answers whose connection had to rest, and for how long in all
        self.throttled_count = 0
        self.throttled_ms = 0
        self._windows = windows
        self._limits: dict[str, int] = {}
        self._default: int | None = None
        #: by client id; None: of those above `CLIENTS_MAX` together
        self._rates: dict[str | None, ByteRate] = {}
        self._swept_ms: int | None = None

    def configure(self, limits: Mapping[str, int], default: int | None) -> None:
        """New limits, in bytes a second. What was counted stays, while the client still has a limit."""
        self._limits, self._default = dict(limits), default
        self.is_on = bool(limits) or default is not None
        if default is None:
            self._rates = {name: rate for name, rate in self._rates.items() if name in limits}

    def limit_of(self, client_id: str) -> int | None:
        """Bytes a second of a client, None for any."""
        return self._limits.get(client_id[:CLIENT_ID_MAX], self._default)

    def answer_bytes_max(self, client_id: str) -> int | None:
        """Most bytes of one answer, None for any: what one window allows, since small answers make short
        rests.

        Differs from Kafka: there it is what all windows allow.
        """
        limit = self.limit_of(client_id)
        return None if limit is None else limit * self._windows.size_ms // 1000

    def count(self, client_id: str, size_bytes: int, now_ms: int) -> int:
        """Count bytes of a client; returns for how many ms its connection must rest.

        At most as long as all windows: clients give up requests that rest much longer. No bytes, no rest:
        polls that wait for records bring no client over its quota. Of a longer id, which Kafka's protocol
        allows, the first 255 characters count.
        """
        client_id = client_id[:CLIENT_ID_MAX]
        limit = self.limit_of(client_id)
        if limit is None or not size_bytes:
            return 0
        rate = self._rates.get(client_id) or self._new_rate(client_id, now_ms)
        most_ms = min(self._windows.total_ms, REST_MS_MAX)
        rest_ms = min(rate.count(size_bytes, limit, self._windows, now_ms), most_ms)
        if rest_ms:
            self.throttled_count += 1
            self.throttled_ms += rest_ms
        return rest_ms

    def _new_rate(self, client_id: str, now_ms: int) -> ByteRate:
        if len(self._rates) >= CLIENTS_MAX:
            # All are looked at once in a window: clients that come and go must not make each request cost it.
            if self._swept_ms is None or now_ms - self._swept_ms >= self._windows.size_ms:
                self._swept_ms = now_ms
                kept = {
                    name: rate
                    for name, rate in self._rates.items()
                    if not rate.is_idle(self._windows, now_ms)
                }
                self._rates = kept
            if len(self._rates) >= CLIENTS_MAX:
                return self._rates.setdefault(None, ByteRate())
        return self._rates.setdefault(client_id, ByteRate())


class ClientQuotas:
    """Both quotas of a broker."""

    def __init__(self, windows: RateWindows) -> None:
        self.produce = ByteRateQuota("producer_byte_rate", windows)
        self.fetch = ByteRateQuota("consumer_byte_rate", windows)

    def configure(self, quotas: Mapping[str, Mapping[str, int]]) -> None:
        """Take all limits anew; `quotas` is `MetadataImage.client_quotas()`."""
        for quota in (self.produce, self.fetch):
            limits = {name: values[quota.name] for name, values in quotas.items() if quota.name in values}
            default = limits.pop(DEFAULT_CLIENT[1], None)
            quota.configure(limits, default)
