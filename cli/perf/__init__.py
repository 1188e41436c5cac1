"""`producer-perf-test`, `consumer-perf-test` and `e2e-latency`: Kafka's tools, over our client."""
