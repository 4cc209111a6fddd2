"""A stand-in for torchelastic 0.2, which became part of torch: only its launcher is here."""
