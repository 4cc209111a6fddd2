"""Of the benchmarks: their tables, pictures and helpers. What they measure is not tested here."""
