"""One module a family of Kafka APIs: a Kafka request to ours, our response to Kafka's."""
