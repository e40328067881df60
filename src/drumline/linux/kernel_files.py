"""Small files and folders that the kernel makes (/proc, /sys). What is not there is empty, and raises nothing."""

from __future__ import annotations

import os


def read_text(path: str) -> str:
    """Return the text without blanks around it; empty if it cannot be read."""
    try:
        with open(path, errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def read_number(path: str) -> int:
    """Return the whole number that a file holds; 0 if there is none."""
    try:
        return int(read_text(path))
    except ValueError:
        return 0


def list_folder(folder: str) -> list[str]:
    """Return the names in a folder, sorted; none if it cannot be read."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
