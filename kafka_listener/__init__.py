"""The listener for Kafka clients: translates Kafka's requests and responses to and from a broker's own."""

if __name__ != "holdfast.kafka_listener":  # the checkout is on sys.path too: one name per module
    raise ImportError("import holdfast.kafka_listener")
