"""The commands of `holdfast`: thin over client, broker and controller."""
