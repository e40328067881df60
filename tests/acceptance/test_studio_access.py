"""What others who reach the studio without its token can do to those who have it: nothing."""

import contextlib
import socket

import pytest
from studio_server import API, run_studio

from drumline.control.settings import studios


@pytest.fixture
def studio():
    with run_studio() as server:
        yield server


def test_guesses_are_refused_after_ten_in_a_minute_and_the_right_token_is_not(studio):
    cookie = studio.cookie()
    for _ in range(30):
        # The cookie of an earlier server guesses nothing, however often it comes.
        assert studio.ask(f"{API}/me", headers={"Cookie": f"drumline-studio-{studio.port}=old"}).status == 401
    statuses = [studio.ask(f"{API}/me", headers={"Authorization": f"Bearer {n}"}).status for n in range(12)]
    assert statuses == [401] * 9 + [429] * 3
    wrong = studio.ask("/login", "POST", {"token": "x"}, {"Sec-Fetch-Site": "same-origin"})
    assert wrong.status == 429
    assert studio.ask(f"{API}/me", headers=cookie).status == 200
    check_the_right_ones_pass(studio)


def test_no_other_page_locks_anybody_out(studio):
    image = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "image"}
    for number in range(12):
        well_formed = f"{number}.{number:022}.{number:064}"
        assert studio.ask(f"/login?once={well_formed}", headers=image).status == 401
        assert studio.ask(f"/login?once=1.{number}.x", headers={}).status == 401
    assert studio.ask(f"{API}/me", headers={"Authorization": "Bearer x"}).status == 401, "not locked"
    check_the_right_ones_pass(studio)


def check_the_right_ones_pass(studio):
    assert studio.ask(f"{API}/me").status == 200
    assert studio.cookie()
    assert studio.ask(studios.make_login(studio.token), headers={}).status == 200
    assert b"<form" in studio.ask("/", headers={}).data, "the way in is shown"


def test_hundreds_of_silent_connections_keep_nobody_out(studio):
    with contextlib.ExitStack() as stack:
        for _ in range(400):
            stack.enter_context(socket.create_connection(("127.0.0.1", studio.port), 60.0))
        check_the_right_ones_pass(studio)
