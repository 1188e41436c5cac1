"""What a broker decides: pure modules; `broker.server` feeds them events and carries out their effects."""
