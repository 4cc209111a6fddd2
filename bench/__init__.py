"""Benchmarks: each prints ratios against a ceiling that is measured in the same run."""
