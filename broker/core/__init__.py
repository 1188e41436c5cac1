"""What a broker decides: pure, fed by `broker.server`."""
