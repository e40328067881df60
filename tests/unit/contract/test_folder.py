"""Where the home is."""

import pytest

from drumline.contract.errors import UsageError
from drumline.contract.folder import base_home


@pytest.mark.parametrize("variable", ["DRUMLINE_HOME", "XDG_DATA_HOME"])
def test_a_home_that_is_not_utf_8_is_refused_in_words(monkeypatch, tmp_path, variable):
    monkeypatch.delenv("DRUMLINE_HOME")
    monkeypatch.setenv(variable, f"{tmp_path}/h-\udcff")
    with pytest.raises(UsageError, match=r"h-\\\\xff.*not UTF-8"):
        base_home()
