"""The battery: files of every kind, damaged in every way, and work that is killed at random moments."""
