"""Which authorities ranks trust where a shell has the variables of the server for Microsoft's client."""

import pytest

from drumline.contract.rank_variables import BEFORE, restore_trust

OURS = "/home/me/.local/share/drumline/azure/ca-bundle-0a1b.pem"


@pytest.mark.parametrize(
    ("now", "before", "expected"),
    [
        (OURS, "/corp.pem", "/corp.pem"),
        (OURS, "", None),
        ("/mine.pem", "/corp.pem", "/mine.pem"),
        ("/mine.pem", "", "/mine.pem"),
        (OURS, None, OURS),
    ],
)
def test_what_somebody_has_named_since_stays(now, before, expected):
    environ = {"SSL_CERT_FILE": now, **({} if before is None else {f"{BEFORE}SSL_CERT_FILE": before})}
    restore_trust(environ)
    assert environ == ({} if expected is None else {"SSL_CERT_FILE": expected})
