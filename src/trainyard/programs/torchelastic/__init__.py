"""A substitute for torchelastic 0.2, which is now part of torch: only its launcher."""
