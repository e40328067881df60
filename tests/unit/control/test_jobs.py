"""Jobs as the folders of a home, which people may have changed."""

from drumline.control.jobs import listing, lookup


def test_links_that_lead_to_themselves_end_no_list(drumline_home, tmp_path):
    folder = drumline_home / "jobs"
    folder.mkdir(parents=True)
    (folder / "loop").symlink_to(folder / "pool")
    (folder / "pool").symlink_to(folder / "loop")
    (folder / "gone").symlink_to(tmp_path / "nowhere")
    (folder / "job").mkdir()
    assert lookup.all_names() == ["job"]
    assert listing.names() == []
