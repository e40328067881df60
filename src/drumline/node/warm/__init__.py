"""Ranks that begin as forks of an interpreter which has imported what they import: who holds it, who asks for it."""
