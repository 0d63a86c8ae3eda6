"""Pictures and captions: the embedded world, photographs, features, words and batches."""
