"""Drivers: their contract, how they are found, and the threads on which they run."""
