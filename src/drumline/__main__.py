"""``python -m drumline`` is ``drumline``."""

from __future__ import annotations

from drumline.cli.main import script

script()
