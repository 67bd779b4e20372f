"""Stuck and slow jobs made for real on CPUs, each with its logs, dumps, stacks, and what was done to it (the truth)."""
