"""The sections of a comparison of two jobs, in the order in which they are shown."""

from __future__ import annotations

SECTIONS = {
    "spec": "field",
    "code": "",
    "environment": "package",
    "variables": "variable",
    "inputs": "input",
    "machine": "field",
    "plan": "field",
}
"""What may be the same in both jobs, and the key that names what differs."""
