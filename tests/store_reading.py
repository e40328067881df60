"""What tests of stores do with them again and again."""

from drumline.staging.stores.store import Object, Store


def found_in(store: Store) -> dict[str, Object]:
    return {found.path: found for found in store.list()}


def whole(store: Store, found: Object, part: int = 1 << 20) -> bytes:
    """All of it, part by part."""
    return b"".join(store.read(found, at, min(at + part, found.size)) for at in range(0, found.size, part))
