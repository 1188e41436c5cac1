"""The wire: error codes, schemas, messages, frames, record batches. Pure; imports nothing of ours."""
