"""The wire: error codes, schemas, messages, frames and record batch headers. Pure; imports nothing of ours."""
