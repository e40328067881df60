"""Verbs of jobs: submit, plan, follow and look at them."""
