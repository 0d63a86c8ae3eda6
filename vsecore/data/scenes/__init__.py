"""The embedded world: pictures of which everything is known, with captions whose truth is known exactly."""
