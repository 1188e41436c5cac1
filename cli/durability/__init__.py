"""What `holdfast topics --describe --durability` asks and says."""
