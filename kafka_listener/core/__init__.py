"""Pure: Kafka's frames, schemas, APIs and error codes."""
