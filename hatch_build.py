"""
Metadata of wheel and sdist that depend on the public address of the repository: project URLs, and absolute links; and
what they carry besides the package: the libraries of the studio's page, which npm fetches, and in a wheel the manual
pages, made from the parsers of the command line.
"""

import os
import re
import sys
import tempfile
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(\]\()(?!https?://|#)([^)\s]+)(\))")


class AddressHook(MetadataHookInterface):
    """
    Reads ``source`` of its table in pyproject.toml; while that is empty, there are no URLs, and links stay relative.
    """

    def update(self, metadata: dict[str, Any]) -> None:
        source = str(self.config.get("source") or "").rstrip("/")
        with open(os.path.join(self.root, "README.md"), encoding="utf-8") as file:
            text = file.read()
        metadata["urls"] = {}
        if source:
            base = f"{source}/blob/v{metadata['version']}"
            text = _LINK.sub(lambda link: f"{link[1]}{base}/{link[2]}{link[3]}", text)
            metadata["urls"] = {
                "Source": source,
                "Documentation": f"{base}/docs/index.md",
                "Changelog": f"{base}/CHANGELOG.md",
                "Issues": f"{source}/issues",
            }
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


class Additions(BuildHookInterface[Any]):
    """Adds the studio's ``page/vendor``, so that a wheel of an sdist has it without npm, and ``share/man/man1``."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        sys.path.insert(0, os.path.join(self.root, "scripts"))
        if self.target_name == "wheel":
            self._add_manual(build_data)
        self._add_page_libraries(build_data)

    def _add_manual(self, build_data: dict[str, Any]) -> None:
        import manual_pages

        self._folder = tempfile.TemporaryDirectory()
        for page in manual_pages.write_pages(self._folder.name):
            build_data["shared_data"][page] = f"share/man/man1/{os.path.basename(page)}"

    def _add_page_libraries(self, build_data: dict[str, Any]) -> None:
        """Fetch them where they are missing; without npm there are none, and the studio says so."""
        import page_libraries

        if page_libraries.find_missing():
            try:
                page_libraries.fetch_libraries()
            except page_libraries.LibrariesError as error:
                self.app.display_warning(f"there are no libraries for the studio's page: {error}")
                return
        above = "" if self.target_name == "wheel" else "src/"
        for name in os.listdir(page_libraries.VENDOR):
            if not name.endswith(".d.ts"):
                path = os.path.join(page_libraries.VENDOR, name)
                build_data["force_include"][path] = f"{above}drumline/studio/page/vendor/{name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if version != "editable" and self.target_name == "wheel":
            self._folder.cleanup()
