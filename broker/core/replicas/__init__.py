"""The replicas of this broker: roles, high watermarks, ISR proposals, fetching from leaders."""
