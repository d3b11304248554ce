"""Tests with processes that begin late: what relies on the order of their starts fails then."""
