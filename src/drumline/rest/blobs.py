"""
The part of Azure's blob storage that the client of Azure ML needs, over HTTP.

Source: https://learn.microsoft.com/rest/api/storageservices/blob-service-rest-api. Whatever else that has is answered
with 501 and a sentence. Only what ``blob_access`` checks lets a request in.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import errno
import functools
import hashlib
import os
import re
import sys
import uuid
from email.utils import formatdate
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import parse_qsl, quote, unquote
from xml.etree import ElementTree as ET

from anyio import CapacityLimiter, to_thread
from starlette.requests import ClientDisconnect
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from drumline.contract.errors import NO_ROOM, DrumlineError, describe_os_error
from drumline.contract.record import NamedTuple
from drumline.rest import blob_access, blob_files
from drumline.rest.blob_access import BlobError
from drumline.rest.blob_files import AnyContainer, Blob, Container, JobContainer, PartialBlob, Properties

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from starlette.requests import Request

PREFIX = "/.blob.core.windows.net"
"""What the client makes of an account with the name ``HOST:PORT/``."""

_METHODS = ("GET", "HEAD", "PUT", "DELETE", "POST", "PATCH", "OPTIONS")
_MOST_THREADS = 8
_PIECE = 1 << 18
_IDLE_S = 60.0
"""In which something more of a body has arrived."""

_MOST_BLOB = 5000 << 20
_MOST_BLOCKS = 50_000
_MOST_LIST_BODY = 8 << 20
_MOST_LISTED = 5000
_MOST_METADATA = 8192
_MOST_RANGE_WITH_MD5 = 4 << 20

_RANGE = re.compile(r"bytes=([0-9]{1,18})-([0-9]{0,18})")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_METADATA_NAME = re.compile(r"[a-z_][a-z0-9_]*")
_NOT_XML = re.compile("[\0-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_CONTENT_HEADER = re.compile(r"x-ms-blob-(cache-control|content-(type|encoding|language|disposition|md5))")
_UNSUPPORTED = re.compile(
    r"if-(un)?modified-since|x-ms-(if-tags|lease-id|copy-source.*|source-.*|encryption-.*|content-crc64|tags"
    r"|structured-.*|range-get-content-crc64|access-tier|immutability-.*|legal-hold)"
)
"""Headers that change what a request means, in ways that are not known here."""

_KNOWN_QUERY = {*blob_access.SAS_FIELDS, "comp", "restype", "timeout"}


class _Call(NamedTuple):
    request: Request
    container: AnyContainer
    name: str
    query: Mapping[str, str]
    permissions: frozenset[str]

    def header(self, name: str, default: str = "") -> str:
        return self.request.headers.get(name, default)

    @property
    def is_new(self) -> bool:
        """Return whether no blob of the name may be there."""
        return self.header("if-none-match") == "*" or "w" not in self.permissions


class _Operation(NamedTuple):
    permissions: str
    """One of which is enough."""

    answer: Callable[[_Call], Awaitable[Response]]
    query: frozenset[str] = frozenset()


def make_routes(find_container: Callable[[str], AnyContainer | None], key: bytes) -> list[Route]:
    """
    Return the routes below ``PREFIX``, and last those of containers at the root, which take every path of two parts.

    ``find_container``: called in a thread, with a name of letters, digits, ``_``, ``.`` and ``-``; may raise
    NotFoundError or PlanError. ``key``: of the signatures.
    """
    respond = functools.partial(_respond, find_container, key)
    paths = ("/{container}/{blob:path}", "/{container}")
    return [Route(prefix + path, respond, methods=_METHODS) for prefix in (PREFIX, "") for path in paths]


async def _respond(
    find_container: Callable[[str], AnyContainer | None], key: bytes, request: Request
) -> Response:
    try:
        answer = await _choose(find_container, key, request)
    except ClientDisconnect:
        return Response(status_code=400)  # Nobody is there to read it.
    except Exception as error:  # noqa: BLE001 - the one place where any error becomes an answer
        answer = _refuse(error if isinstance(error, BlobError) else _explain(error))
    answer.headers["x-ms-request-id"] = str(uuid.uuid4())
    answer.headers["x-ms-version"] = request.headers.get("x-ms-version", "2021-12-02")
    return answer


async def _choose(
    find_container: Callable[[str], AnyContainer | None], key: bytes, request: Request
) -> Response:
    container, name = request.path_params["container"], request.path_params.get("blob", "")
    query = dict(parse_qsl(request.url.query, keep_blank_values=True))
    comp = query.get("comp", "")
    operation = _OPERATIONS.get((request.method, query.get("restype", ""), comp, bool(name)))
    about = query.get("prefix", "") if comp == "list" else name
    if "authorization" in request.headers and "sig" not in query:
        path = request.scope["raw_path"].decode("latin-1")
        permissions = blob_access.check_shared_key(key, request.method, path, query, request.headers)
    else:
        needed = operation.permissions if operation else ""
        permissions = blob_access.check(key, query, container, about, needed)
    blob_access.welcome(request.scope)
    if operation is None:
        raise _not_supported(f"{request.method} of a {'blob' if name else 'container'} with comp={comp!r}")
    unknown = {
        *(query.keys() - _KNOWN_QUERY - operation.query),
        *filter(_UNSUPPORTED.fullmatch, request.headers),
    }
    if unknown:
        raise _not_supported(", ".join(sorted(unknown))[:200])

    def find() -> AnyContainer:
        try:
            found = find_container(container) if _NAME.fullmatch(container) else None
        except DrumlineError as error:
            raise BlobError(404, "ContainerNotFound", error.message) from error
        if found is None:
            raise BlobError(404, "ContainerNotFound", "there is no container of that name")
        return found

    return await operation.answer(_Call(request, await _run(find), name, query, permissions))


@functools.cache
def _limit_threads() -> CapacityLimiter:
    return CapacityLimiter(_MOST_THREADS)


async def _run(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call it in a thread that is not one of those of other routes."""
    return await to_thread.run_sync(function, *arguments, limiter=_limit_threads())


# errors


def _refuse(error: BlobError) -> Response:
    root = ET.Element("Error")
    _add(root, "Code", error.code)
    _add(root, "Message", error.message)
    answer = _to_xml(root, error.status)
    answer.headers["x-ms-error-code"] = error.code
    return answer


def _not_supported(what: str) -> BlobError:
    return BlobError(501, "NotImplemented", f"{what} is not supported here")


def _explain(error: Exception) -> BlobError:
    """Return what is answered to an error of the disk, or a mistake of ours."""
    if isinstance(error, OSError):
        if error.errno in NO_ROOM:
            return BlobError(
                507, "InsufficientStorage", "the disk of this container is full; make room there"
            )
        what = f"the disk of this container refuses it: {describe_os_error(error)}"
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            return BlobError(403, "InsufficientAccountPermissions", what)
    else:
        what = f"internal error: {type(error).__name__}"
    print(f"error: blobs: {error!r}", file=sys.stderr)
    return BlobError(500, "InternalError", what)


def _to_xml(root: ET.Element, status: int = 200) -> Response:
    text = ET.tostring(root, "utf-8", xml_declaration=True)
    return Response(text, status, media_type="application/xml")


def _add(parent: ET.Element, tag: str, text: str = "") -> ET.Element:
    element = ET.SubElement(parent, tag)
    element.text = _NOT_XML.sub("?", text)
    return element


# bodies


async def _receive(call: _Call, container: Container) -> PartialBlob:
    """Return a body in a file, whose MD5 is that of the request, if it has one. Raises BlobError, OSError."""
    _check_length(call, _MOST_BLOB)
    partial: PartialBlob = await _run(PartialBlob, container)
    try:
        piece = bytearray()
        async for chunk in _read_chunks(call.request):
            piece += chunk
            if len(piece) >= _PIECE:
                await _run(partial.write, piece)
                piece = bytearray()
        await _run(partial.write, piece)
        _check_md5(call.header("content-md5"), partial.md5)
    except BaseException:
        partial.discard()
        raise
    return partial


async def _read_chunks(request: Request) -> AsyncIterator[bytes]:
    """Yield a body of the length that its head says, which the server sees to. Raises BlobError, ClientDisconnect."""
    chunks = request.stream()
    while True:
        try:
            async with asyncio.timeout(_IDLE_S):
                chunk = await anext(chunks, None)
        except TimeoutError:
            raise BlobError(408, "OperationTimedOut", "the body does not arrive") from None
        if chunk is None:
            return
        yield chunk


def _check_length(call: _Call, most: int) -> None:
    text = call.header("content-length")
    if call.header("transfer-encoding") or not re.fullmatch("[0-9]{1,18}", text):
        raise BlobError(411, "MissingContentLengthHeader", "a body needs its length: Content-Length")
    if int(text) > most:
        raise BlobError(413, "RequestBodyTooLarge", f"the body is larger than {most} bytes")


def _check_md5(wanted: str, found: str) -> None:
    if wanted and len(_decode(wanted)) != hashlib.md5(usedforsecurity=False).digest_size:
        raise BlobError(400, "InvalidMd5", "Content-MD5 is no MD5 in base64")
    if wanted not in ("", found):
        raise BlobError(400, "Md5Mismatch", "the body has another MD5 than Content-MD5 says")


def _compute_md5(data: bytes) -> str:
    return base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()


def _decode(text: str) -> bytes:
    """Return what is in base64; empty where it is not that."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""


def _read_properties(call: _Call) -> Properties:
    """Return the properties that a blob is to have. Raises BlobError."""
    sent, before = call.request.headers.items(), "x-ms-meta-"
    metadata = {name.removeprefix(before): value for name, value in sent if name.startswith(before)}
    if not all(map(_METADATA_NAME.fullmatch, metadata)):
        raise BlobError(
            400, "InvalidMetadata", "a name of metadata has letters, digits and '_', no digit first"
        )
    if sum(map(len, (*metadata, *metadata.values()))) > _MOST_METADATA:
        raise BlobError(400, "MetadataTooLarge", f"metadata has {_MOST_METADATA} bytes at most")
    return Properties(
        {found[1]: value for name, value in sent if (found := _CONTENT_HEADER.fullmatch(name))}, metadata
    )


# blobs


def _describe(blob: Blob) -> dict[str, str]:
    return {"etag": blob.etag, "last-modified": formatdate(blob.facts.st_mtime, usegmt=True)}


def _open_to_write(call: _Call) -> Container:
    """Return the container. Raises BlobError where the blob cannot be written, before its body is read."""
    container = call.container
    if isinstance(container, JobContainer) or not container.is_writable:
        raise BlobError(403, "AuthorizationPermissionMismatch", "this container can be read only")
    blob_files.split_name(call.name)
    if call.header("if-match") or call.header("if-none-match", "*") != "*":
        raise _not_supported("a condition for writing other than If-None-Match: *")
    return container


async def _put_blob(call: _Call) -> Response:
    container, properties = _open_to_write(call), _read_properties(call)
    if call.header("x-ms-blob-type") != "BlockBlob":
        raise _not_supported("a type of blob other than BlockBlob")
    partial = await _receive(call, container)
    try:
        _check_md5(properties.headers.get("content-md5", ""), partial.md5)
        if call.header("content-md5"):
            properties = properties._replace(headers={**properties.headers, "content-md5": partial.md5})
        place = functools.partial(partial.place, call.name, properties, is_new=call.is_new)
        return Response(status_code=201, headers=_describe(await _run(place)) | {"content-md5": partial.md5})
    finally:
        partial.discard()


async def _put_block(call: _Call) -> Response:
    container, block = _open_to_write(call), _read_block_id(call.query.get("blockid", ""))
    partial = await _receive(call, container)
    try:
        await _run(partial.place_as_block, call.name, block)
        return Response(status_code=201, headers={"content-md5": partial.md5})
    finally:
        partial.discard()


def _read_block_id(text: str) -> str:
    block = _decode(text)
    if not 0 < len(block) <= 64:
        raise BlobError(400, "InvalidBlockId", "the ID of a block is base64 of 1 to 64 bytes")
    return block.hex()


async def _put_block_list(call: _Call) -> Response:
    container, properties = _open_to_write(call), _read_properties(call)
    _check_length(call, _MOST_LIST_BODY)
    body = b"".join([chunk async for chunk in _read_chunks(call.request)])
    _check_md5(call.header("content-md5"), _compute_md5(body))

    def join() -> Blob:
        blocks = _parse_block_list(body)
        partial = PartialBlob(container)
        try:
            if call.is_new:
                blob_files.check_is_new(container, call.name)
            partial.append(blocks, call.name)
            return partial.place(call.name, properties, is_new=call.is_new)
        except BlobError as error:
            if error.code == "BlobAlreadyExists":
                blob_files.drop_blocks(container, call.name)
            raise
        finally:
            partial.discard()

    return Response(status_code=201, headers=_describe(await _run(join)))


def _parse_block_list(body: bytes) -> list[str]:
    """Return the IDs of a list's blocks. Raises BlobError."""
    try:
        text = body.decode()
        # No entities, which can be made to fill the memory.
        root = ET.fromstring("" if "<!" in text else text)  # noqa: S314 - without entities
        if root.tag != "BlockList" or not {one.tag for one in root} <= {"Latest", "Uncommitted", "Committed"}:
            raise ValueError(root.tag)
    except (ET.ParseError, ValueError) as error:
        raise BlobError(400, "InvalidXmlDocument", "the body is no list of blocks") from error
    if len(root) > _MOST_BLOCKS:
        raise BlobError(400, "BlockListTooLong", f"a blob has {_MOST_BLOCKS} blocks at most")
    return [_read_block_id((one.text or "").strip()) for one in root]


async def _put_metadata(call: _Call) -> Response:
    container, metadata = _open_to_write(call), _read_properties(call).metadata
    return Response(headers=_describe(await _run(blob_files.set_metadata, container, call.name, metadata)))


async def _delete_blob(call: _Call) -> Response:
    await _run(blob_files.delete_blob, _open_to_write(call), call.name)
    return Response(status_code=202)


async def _get_blob(call: _Call) -> Response:
    def answer() -> Response:
        file, blob = blob_files.open_blob(call.container, call.name)
        with contextlib.ExitStack() as stack:
            stack.callback(file.close)
            made = _answer_with(call, file, blob)
            if isinstance(made, StreamingResponse):
                stack.pop_all()
            return made

    found: Response = await _run(answer)
    return found


def _answer_with(call: _Call, file: BinaryIO, blob: Blob) -> Response:
    """Return the answer to GET or HEAD of a blob, which streams the file if it has a body. Raises BlobError."""
    size = blob.facts.st_size
    headers = {"content-type": "application/octet-stream", **blob.properties.headers, **_describe(blob)}
    headers |= {f"x-ms-meta-{name}": value for name, value in blob.properties.metadata.items()}
    headers |= {
        "x-ms-blob-type": "BlockBlob",
        "x-ms-lease-status": "unlocked",
        "x-ms-lease-state": "available",
    }
    headers |= {"accept-ranges": "bytes", "content-length": str(size), "x-content-type-options": "nosniff"}
    if call.header("if-none-match"):
        raise _not_supported("If-None-Match for reading")
    if call.header("if-match", "*") not in ("*", blob.etag):
        raise BlobError(412, "ConditionNotMet", "the blob has changed: it has another ETag")
    if call.request.method == "HEAD":
        return Response(headers=headers)
    asked = call.header("x-ms-range") or call.header("range")
    if not asked:
        return StreamingResponse(_stream(file, 0, size), headers=headers)
    begin, end = _read_range(asked, size)
    headers |= {"content-range": f"bytes {begin}-{end - 1}/{size}", "content-length": str(end - begin)}
    if md5 := headers.pop("content-md5", ""):
        headers["x-ms-blob-content-md5"] = md5
    if call.header("x-ms-range-get-content-md5").lower() == "true":
        if end - begin > _MOST_RANGE_WITH_MD5:
            raise BlobError(400, "OutOfRangeInput", "a range with an MD5 has 4 MiB at most")
        headers["content-md5"] = _compute_md5(os.pread(file.fileno(), end - begin, begin))
    return StreamingResponse(_stream(file, begin, end), 206, headers)


def _read_range(text: str, size: int) -> tuple[int, int]:
    """Return the first byte and the one after the last. Raises BlobError."""
    found = _RANGE.fullmatch(text)
    begin, end = (int(found[1]), int(found[2] or size) + 1) if found else (0, 0)
    if end <= begin < size or not found:
        raise BlobError(400, "InvalidHeaderValue", "a range has the form bytes=FIRST-LAST")
    if begin >= size:
        raise BlobError(416, "InvalidRange", f"the blob has {size} bytes")
    return begin, min(end, size)


async def _stream(file: BinaryIO, begin: int, end: int) -> AsyncIterator[bytes]:
    with file:
        while begin < end:
            piece = await _run(os.pread, file.fileno(), min(_PIECE, end - begin), begin)
            if not piece:
                return  # It became shorter; the server ends the connection.
            begin += len(piece)
            yield piece


# containers


async def _show_container(call: _Call) -> Response:
    headers = {"x-ms-lease-status": "unlocked", "x-ms-lease-state": "available", "etag": '"0x1"'}
    return Response(headers={**headers, "last-modified": formatdate(0, usegmt=True)})


async def _list_blobs(call: _Call) -> Response:
    asked = call.query
    if asked.get("delimiter", "/") != "/" or asked.get("include", "metadata") not in ("", "metadata"):
        raise _not_supported("a list other than with delimiter=/ and include=metadata")
    most = asked.get("maxresults", str(_MOST_LISTED))
    if not re.fullmatch("[0-9]{1,9}", most) or int(most) < 1:
        raise BlobError(400, "OutOfRangeQueryParameterValue", "maxresults is a number from 1")
    return _to_xml(await _run(_make_page, call, min(int(most), _MOST_LISTED)))


def _make_page(call: _Call, most: int) -> ET.Element:
    """Return a page of a list. Its ``NextMarker`` is its last name, as in an address."""
    asked = {"maxresults": str(most), **call.query}
    root = ET.Element("EnumerationResults", {"ContainerName": call.request.path_params["container"]})
    for tag in ("Prefix", "Marker", "MaxResults", "Delimiter"):
        _add(root, tag, asked.get(tag.lower(), ""))
    blobs, last = ET.SubElement(root, "Blobs"), ""
    prefix, after = asked.get("prefix", ""), unquote(asked.get("marker", ""))
    names = blob_files.list_blobs(call.container, prefix, after, by_folder=bool(asked.get("delimiter")))
    with contextlib.closing(names):
        for name, blob in names:
            if len(blobs) == most:
                _add(root, "NextMarker", quote(last))
                return root
            entry = ET.SubElement(blobs, "Blob" if blob else "BlobPrefix")
            # XML has no such characters, and makes one line end of another.
            if _NOT_XML.search(name):
                _add(entry, "Name", quote(name)).set("Encoded", "true")
            else:
                _add(entry, "Name", name)
            if blob:
                _add_blob(entry, blob, with_metadata=bool(asked.get("include")))
            last = name
    _add(root, "NextMarker")
    return root


def _add_blob(entry: ET.Element, blob: Blob, *, with_metadata: bool) -> None:
    properties = _add(entry, "Properties")
    headers = {"content-type": "application/octet-stream", **blob.properties.headers, **_describe(blob)}
    headers |= {"content-length": str(blob.facts.st_size), "BlobType": "BlockBlob"}
    headers |= {"LeaseStatus": "unlocked", "LeaseState": "available"}
    for name, value in headers.items():
        tag = name if name.istitle() or name[0].isupper() else name.title().replace("Md5", "MD5")
        _add(properties, tag, value)
    if with_metadata:
        metadata = _add(entry, "Metadata")
        for name, value in blob.properties.metadata.items():
            _add(metadata, name, value)


_OPERATIONS = {
    ("PUT", "", "", True): _Operation("cw", _put_blob),
    ("PUT", "", "block", True): _Operation("cw", _put_block, frozenset({"blockid"})),
    ("PUT", "", "blocklist", True): _Operation("cw", _put_block_list),
    ("PUT", "", "metadata", True): _Operation("w", _put_metadata),
    ("GET", "", "", True): _Operation("r", _get_blob),
    ("HEAD", "", "", True): _Operation("r", _get_blob),
    ("DELETE", "", "", True): _Operation("d", _delete_blob),
    ("GET", "container", "list", False): _Operation(
        "l", _list_blobs, frozenset({"prefix", "delimiter", "marker", "maxresults", "include"})
    ),
    ("GET", "container", "", False): _Operation("rl", _show_container),
    ("HEAD", "container", "", False): _Operation("rl", _show_container),
}
"""By method, ``restype``, ``comp``, and whether a blob is named."""
