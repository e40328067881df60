"""
The part of Azure's blob storage that the client of Azure ML needs, over HTTP.

Source: https://learn.microsoft.com/rest/api/storageservices/blob-service-rest-api. Whatever else that has is answered
with 501 and a sentence. Only a signature of ``blob_access`` lets a request in.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import hashlib
import os
import re
import sys
import time
import uuid
from email.utils import formatdate
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import parse_qsl, quote, unquote
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

from anyio import CapacityLimiter, to_thread
from starlette.requests import ClientDisconnect
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from drumline.contract.errors import NO_ROOM, DrumlineError, describe_os_error
from drumline.contract.record import NamedTuple
from drumline.rest import blob_access, blob_files
from drumline.rest.blob_access import BlobError
from drumline.rest.blob_files import Blob, BlobFilter, Container, JobContainer, PartialBlob, Properties

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from starlette.requests import Request

PREFIX = "/.blob.core.windows.net"
"""What the client makes of an account with the name ``HOST:PORT/``."""

METHODS = ("GET", "HEAD", "PUT", "DELETE", "POST", "PATCH", "OPTIONS")

_MOST_THREADS = 8
_PIECE = 1 << 20
_IDLE_S = 60.0
"""In which something more of a body has arrived."""

_MOST_BLOB = 5000 << 20
_MOST_BLOCKS = 50_000
_MOST_LIST_BODY = 8 << 20
_MOST_DRAINED = 128 << 20
"""Of a body that nobody wants: a client that may not send it to its end does not read why."""

_MOST_LISTED = 5000
_MOST_METADATA = 8192
_MOST_RANGE_WITH_MD5 = 4 << 20
_SWEPT_EVERY_S = 3600.0

_RANGE = re.compile(r"bytes=(\d{1,18})-(\d{0,18})")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_METADATA_NAME = re.compile(r"[a-z_][a-z0-9_]*")
_NOT_XML = re.compile("[\0-\x1f\x7f-\x9f\ufffe\uffff]")
_CONTENT_HEADERS = ("type", "encoding", "language", "disposition", "md5")
_UNSUPPORTED = re.compile(
    r"if-(un)?modified-since|x-ms-(if-tags|lease-id|copy-source.*|source-.*|encryption-.*|content-crc64|tags"
    r"|structured-.*|access-tier|immutability-.*|legal-hold|snapshot)"
)
"""Headers that change what a request means, in ways that are not known here."""

_KNOWN_QUERY = {*blob_access.SAS_FIELDS, "comp", "restype", "timeout"}


class _Call(NamedTuple):
    request: Request
    container: Container | JobContainer
    name: str
    query: Mapping[str, str]
    given: frozenset[str]
    """Permissions."""

    @property
    def headers(self) -> Mapping[str, str]:
        return self.request.headers

    def writable(self) -> Container:
        """Return the container, to write to it. Raises BlobError."""
        if isinstance(self.container, JobContainer) or not self.container.is_writable:
            raise BlobError(403, "AuthorizationPermissionMismatch", "this container can be read only")
        blob_files.split_name(self.name)
        return self.container

    @property
    def is_new(self) -> bool:
        """Return whether no blob of the name may be there."""
        return self.headers.get("if-none-match") == "*" or "w" not in self.given


class _Operation(NamedTuple):
    permissions: str
    answer: Callable[[_Call], Awaitable[Response]]
    query: frozenset[str] = frozenset()


def make_routes(find_container: Callable[[str], Container | JobContainer | None], key: bytes) -> list[Route]:
    """
    Return the routes below ``PREFIX``, and last those of containers at the root, which take every path of two parts.

    ``find_container``: called in a thread, with a name of letters, digits, ``_``, ``.`` and ``-``; may raise
    NotFoundError or PlanError. ``key``: of the signatures.
    """
    server = _BlobServer(find_container, key)
    paths = ("/{container}/{blob:path}", "/{container}")
    return [
        Route(prefix + path, server.respond, methods=METHODS, name="blobs")
        for prefix in (PREFIX, "")
        for path in paths
    ]


class _BlobServer:
    def __init__(self, find_container: Callable[[str], Container | JobContainer | None], key: bytes) -> None:
        self._find_container = find_container
        self._key = key

    async def respond(self, request: Request) -> Response:
        try:
            answer = await self._choose(request)
        except BlobError as error:
            answer = _refuse(error)
        except ClientDisconnect:
            return Response(status_code=400)  # Nobody is there to read it.
        except OSError as error:
            answer = _refuse(_explain(error))
        except Exception as error:  # noqa: BLE001 - the one place where any error becomes an answer
            print(f"error: {request.method} {request.url.path!r}: {error!r}", file=sys.stderr)
            answer = _refuse(BlobError(500, "InternalError", f"internal error: {type(error).__name__}"))
        if answer.status_code >= 400:
            await _drain(request)
        answer.headers["x-ms-request-id"] = str(uuid.uuid4())
        answer.headers["x-ms-version"] = request.headers.get("x-ms-version", "2021-12-02")
        return answer

    async def _choose(self, request: Request) -> Response:
        pairs = parse_qsl(request.url.query, keep_blank_values=True)
        container = str(request.path_params["container"])
        name = str(request.path_params.get("blob", ""))
        query = dict(pairs)
        kind = (request.method, query.get("restype", ""), query.get("comp", ""), bool(name))
        operation = _OPERATIONS.get(kind)
        about = query.get("prefix", "") if query.get("comp") == "list" else name
        wanted = operation.permissions if operation else ""
        given = blob_access.check(self._key, pairs, container, about, wanted)
        if operation is None:
            what = f"{request.method} of a {'blob' if name else 'container'}"
            raise BlobError(
                501, "NotImplemented", f"{what} with comp={query.get('comp', '')!r} is not supported here"
            )
        unknown = {
            *(query.keys() - _KNOWN_QUERY - operation.query),
            *filter(_UNSUPPORTED.fullmatch, request.headers),
        }
        if unknown:
            raise BlobError(
                501, "NotImplemented", f"{', '.join(sorted(unknown))[:200]} is not supported here"
            )
        found = await _run(self._find, container)
        return await operation.answer(_Call(request, found, name, query, given))

    def _find(self, name: str) -> Container | JobContainer:
        try:
            found = self._find_container(name) if _NAME.fullmatch(name) else None
        except DrumlineError as error:
            raise BlobError(404, "ContainerNotFound", error.message) from error
        if found is None:
            raise BlobError(404, "ContainerNotFound", "there is no container of that name")
        return found


_limiter: CapacityLimiter | None = None


async def _run(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call it in a thread that is not one of those of other routes."""
    global _limiter  # noqa: PLW0603 - it belongs to the one loop of the server, and is made when that runs
    _limiter = _limiter or CapacityLimiter(_MOST_THREADS)
    return await to_thread.run_sync(function, *arguments, limiter=_limiter)


# errors


def _refuse(error: BlobError) -> Response:
    text = f"<Error><Code>{error.code}</Code><Message>{_escape(error.message)}</Message></Error>"
    answer = _to_xml(text, error.status)
    answer.headers["x-ms-error-code"] = error.code
    return answer


def _explain(error: OSError) -> BlobError:
    """Return what is answered to an error of the disk."""
    if error.errno in NO_ROOM:
        return BlobError(507, "InsufficientStorage", "the disk of this container is full; make room there")
    what = f"the disk of this container refuses it: {describe_os_error(error)}"
    if isinstance(error, PermissionError) or error.errno == 30:
        return BlobError(403, "InsufficientAccountPermissions", what)
    print(f"error: {what}", file=sys.stderr)
    return BlobError(500, "InternalError", what)


def _to_xml(text: str, status: int = 200) -> Response:
    head = '<?xml version="1.0" encoding="utf-8"?>'
    return Response((head + text).encode("utf-8", "replace"), status, media_type="application/xml")


def _escape(text: str) -> str:
    return escape(_NOT_XML.sub("?", text))


# bodies


async def _receive(call: _Call, container: Container) -> PartialBlob:
    """Return a body as an upload, whose MD5 is that of the request, if it has one. Raises BlobError, OSError."""
    _read_length(call.request, _MOST_BLOB)
    upload: PartialBlob = await _run(PartialBlob, container)
    try:
        piece = bytearray()
        async for chunk in _read_chunks(call.request):
            piece += chunk
            if len(piece) >= _PIECE:
                await _run(upload.write, piece)
                piece = bytearray()
        await _run(upload.write, piece)
        _check_md5(call.headers.get("content-md5", ""), upload.md5)
    except BaseException:
        upload.discard()
        raise
    return upload


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


async def _read_small(request: Request, most: int) -> bytes:
    _read_length(request, most)
    return b"".join([chunk async for chunk in _read_chunks(request)])


def _read_length(request: Request, most: int) -> int:
    """Return the length of a body. Raises BlobError where it is not known before, or too large."""
    text = request.headers.get("content-length", "")
    if "transfer-encoding" in request.headers or not re.fullmatch(r"\d{1,18}", text, re.ASCII):
        raise BlobError(411, "MissingContentLengthHeader", "a body needs its length: Content-Length")
    if int(text) > most:
        raise BlobError(413, "RequestBodyTooLarge", f"the body is larger than {most} bytes")
    return int(text)


def _check_md5(wanted: str, found: str) -> None:
    if not wanted:
        return
    try:
        is_digest = len(base64.b64decode(wanted, validate=True)) == 16
    except (binascii.Error, ValueError):
        is_digest = False
    if not is_digest:
        raise BlobError(400, "InvalidMd5", "Content-MD5 is no MD5 in base64")
    if wanted != found:
        raise BlobError(400, "Md5Mismatch", "the body has another MD5 than Content-MD5 says")


async def _drain(request: Request) -> None:
    count = 0
    with contextlib.suppress(ClientDisconnect, BlobError, RuntimeError):
        async for chunk in _read_chunks(request):
            count += len(chunk)
            if count > _MOST_DRAINED:
                return


def _read_properties(call: _Call) -> Properties:
    headers = {
        f"content-{name}": value
        for name in _CONTENT_HEADERS
        if (value := call.headers.get(f"x-ms-blob-content-{name}"))
    }
    if value := call.headers.get("x-ms-blob-cache-control"):
        headers["cache-control"] = value
    return Properties(headers, _read_metadata(call))


def _read_metadata(call: _Call) -> dict[str, str]:
    before = "x-ms-meta-"
    found = {key.removeprefix(before): value for key, value in call.headers.items() if key.startswith(before)}
    if not all(map(_METADATA_NAME.fullmatch, found)):
        raise BlobError(
            400, "InvalidMetadata", "a name of metadata has letters, digits and '_', no digit first"
        )
    if sum(map(len, (*found, *found.values()))) > _MOST_METADATA:
        raise BlobError(400, "MetadataTooLarge", f"metadata has {_MOST_METADATA} bytes at most")
    return found


# blobs


def _describe(blob: Blob) -> dict[str, str]:
    return {"etag": blob.etag, "last-modified": formatdate(blob.facts.st_mtime, usegmt=True)}


async def _put_blob(call: _Call) -> Response:
    container, properties = call.writable(), _read_properties(call)
    if call.headers.get("x-ms-blob-type") != "BlockBlob":
        raise BlobError(501, "NotImplemented", "only blobs of the type BlockBlob are supported here")
    await _check_write(call, container)
    upload = await _receive(call, container)
    try:
        _check_md5(properties.headers.get("content-md5", ""), upload.md5)
        if "content-md5" in call.headers:
            properties = properties._replace(headers={**properties.headers, "content-md5": upload.md5})
        blob = await _run(_place, upload, call.name, properties, call.is_new)
    finally:
        upload.discard()
    return Response(status_code=201, headers={**_describe(blob), "content-md5": upload.md5})


def _place(upload: PartialBlob, name: str, properties: Properties, is_new: bool) -> Blob:
    return blob_files.place_blob(upload, name, properties, is_new=is_new)


async def _check_write(call: _Call, container: Container) -> None:
    """Check conditions before a body is read; sweep. Raises BlobError."""
    _sweep(container)
    if "if-match" in call.headers or call.headers.get("if-none-match", "*") != "*":
        raise BlobError(
            501, "NotImplemented", "of conditions for writing, only If-None-Match: * is supported here"
        )
    if call.is_new:
        await _run(blob_files.check_is_new, container, call.name)


_swept: dict[str, float] = {}


def _sweep(container: Container) -> None:
    """Remove what is left of uploads, once an hour."""
    now = time.monotonic()
    if now - _swept.get(container.folder, -_SWEPT_EVERY_S) >= _SWEPT_EVERY_S:
        _swept[container.folder] = now
        asyncio.get_running_loop().run_in_executor(None, blob_files.remove_leftovers, container)


def _read_block_id(text: str) -> str:
    try:
        block = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        block = b""
    if not 0 < len(block) <= 64:
        raise BlobError(400, "InvalidBlockId", "the ID of a block is base64 of 1 to 64 bytes")
    return block.hex()


async def _put_block(call: _Call) -> Response:
    container, block = call.writable(), _read_block_id(call.query.get("blockid", ""))
    _sweep(container)
    upload = await _receive(call, container)
    try:
        await _run(blob_files.place_block, upload, call.name, block)
    finally:
        upload.discard()
    return Response(status_code=201, headers={"content-md5": upload.md5})


async def _put_block_list(call: _Call) -> Response:
    container, properties = call.writable(), _read_properties(call)
    await _check_write(call, container)
    body = await _read_small(call.request, _MOST_LIST_BODY)
    _check_md5(call.headers.get("content-md5", ""), _compute_md5(body))
    blocks = _parse_block_list(body)

    def join() -> Blob:
        upload = PartialBlob(container)
        try:
            blob_files.join_blocks(upload, call.name, blocks)
            return _place(upload, call.name, properties, call.is_new)
        finally:
            upload.discard()

    return Response(status_code=201, headers=_describe(await _run(join)))


def _compute_md5(data: bytes) -> str:
    return base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()


def _parse_block_list(body: bytes) -> list[str]:
    invalid = BlobError(400, "InvalidXmlDocument", "the body is no list of blocks")
    if b"<!" in body:  # No entities, which can be made to fill the memory.
        raise invalid
    try:
        root = ET.fromstring(body)  # noqa: S314 - without entities
    except (ET.ParseError, ValueError, LookupError) as error:
        raise invalid from error
    if root.tag != "BlockList" or any(one.tag not in ("Latest", "Uncommitted", "Committed") for one in root):
        raise invalid
    if len(root) > _MOST_BLOCKS:
        raise BlobError(400, "BlockListTooLong", f"a blob has {_MOST_BLOCKS} blocks at most")
    return [_read_block_id((one.text or "").strip()) for one in root]


async def _put_metadata(call: _Call) -> Response:
    container, metadata = call.writable(), _read_metadata(call)
    blob = await _run(blob_files.set_metadata, container, call.name, metadata)
    return Response(headers=_describe(blob))


async def _delete_blob(call: _Call) -> Response:
    await _run(blob_files.delete_blob, call.writable(), call.name)
    return Response(status_code=202)


async def _get_blob(call: _Call) -> Response:
    file, blob = await _run(blob_files.open_blob, call.container, call.name)
    try:
        answer = _answer_with(call, file, blob)
    except BaseException:
        file.close()
        raise
    if not isinstance(answer, StreamingResponse):
        file.close()
    return answer


def _answer_with(call: _Call, file: BinaryIO, blob: Blob) -> Response:
    """Return the answer to GET or HEAD of a blob. Raises BlobError."""
    size = blob.facts.st_size
    headers = {"content-type": "application/octet-stream", **blob.properties.headers, **_describe(blob)}
    headers |= {f"x-ms-meta-{name}": value for name, value in blob.properties.metadata.items()}
    headers |= {
        "x-ms-blob-type": "BlockBlob",
        "x-ms-lease-status": "unlocked",
        "x-ms-lease-state": "available",
    }
    headers |= {"accept-ranges": "bytes", "content-length": str(size), "x-content-type-options": "nosniff"}
    _check_conditions(call, blob)
    if call.request.method == "HEAD":
        return Response(headers=headers)
    span = _read_range(call, size)
    if span is None:
        return StreamingResponse(_stream(file, 0, size), headers=headers)
    begin, end = span
    headers |= {"content-range": f"bytes {begin}-{end - 1}/{size}", "content-length": str(end - begin)}
    if md5 := headers.pop("content-md5", ""):
        headers["x-ms-blob-content-md5"] = md5
    if call.headers.get("x-ms-range-get-content-md5", "").lower() == "true":
        if end - begin > _MOST_RANGE_WITH_MD5:
            raise BlobError(400, "OutOfRangeInput", "a range with an MD5 has 4 MiB at most")
        headers["content-md5"] = _compute_md5(os.pread(file.fileno(), end - begin, begin))
    return StreamingResponse(_stream(file, begin, end), 206, headers)


def _check_conditions(call: _Call, blob: Blob) -> None:
    match, other = call.headers.get("if-match", "*"), call.headers.get("if-none-match", "")
    if match not in ("*", blob.etag):
        raise BlobError(412, "ConditionNotMet", "the blob has changed: it has another ETag")
    if other in ("*", blob.etag):
        raise BlobError(304, "ConditionNotMet", "the blob has not changed")


def _read_range(call: _Call, size: int) -> tuple[int, int] | None:
    """Return the first byte and the one after the last; None for all. Raises BlobError."""
    text = call.headers.get("x-ms-range") or call.headers.get("range")
    if not text:
        return None
    found = _RANGE.fullmatch(text)
    begin, last = (int(found[1]), int(found[2] or size)) if found else (0, -1)
    if last < begin < size or not found:
        raise BlobError(400, "InvalidHeaderValue", "a range has the form bytes=FIRST-LAST")
    if begin >= size:
        raise BlobError(416, "InvalidRange", f"the blob has {size} bytes")
    return begin, min(last + 1, size)


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
        raise BlobError(
            501, "NotImplemented", "of lists, only delimiter=/ and include=metadata are supported here"
        )
    most = asked.get("maxresults", str(_MOST_LISTED))
    if not re.fullmatch(r"\d{1,9}", most, re.ASCII) or int(most) < 1:
        raise BlobError(400, "OutOfRangeQueryParameterValue", "maxresults is a number from 1")
    return _to_xml(await _run(_write_page, call, min(int(most), _MOST_LISTED)))


def _write_page(call: _Call, most: int) -> str:
    """Return a page of a list as XML. ``NextMarker`` is the last name of it."""
    asked = call.query
    wanted = BlobFilter(
        asked.get("prefix", ""), unquote(asked.get("marker", "")), bool(asked.get("delimiter"))
    )
    with_metadata = bool(asked.get("include"))
    lines: list[str] = []
    last = marker = ""
    with contextlib.closing(blob_files.list_blobs(call.container, wanted)) as found:
        for name, blob in found:
            if len(lines) == most:
                marker = quote(last)
                break
            lines.append(_write_entry(name, blob, with_metadata=with_metadata))
            last = name
    asked_for = "".join(
        f"<{tag}>{_escape(asked.get(key, ''))}</{tag}>"
        for tag, key in (("Prefix", "prefix"), ("Marker", "marker"), ("Delimiter", "delimiter"))
    )
    return (
        f'<EnumerationResults ContainerName="{call.request.path_params["container"]}">{asked_for}'
        f"<MaxResults>{most}</MaxResults><Blobs>{''.join(lines)}</Blobs><NextMarker>{marker}</NextMarker>"
        "</EnumerationResults>"
    )


def _write_entry(name: str, blob: Blob | None, *, with_metadata: bool) -> str:
    # XML has no such characters, and makes one line end of another.
    is_plain = not _NOT_XML.search(name)
    named = f"<Name>{escape(name)}</Name>" if is_plain else f'<Name Encoded="true">{quote(name)}</Name>'
    if blob is None:
        return f"<BlobPrefix>{named}</BlobPrefix>"
    headers = {"content-type": "application/octet-stream", **blob.properties.headers}
    values = {
        "Last-Modified": formatdate(blob.facts.st_mtime, usegmt=True),
        "Etag": blob.etag,
        "Content-Length": str(blob.facts.st_size),
        "Content-Type": headers["content-type"],
        "Content-MD5": headers.get("content-md5", ""),
        "BlobType": "BlockBlob",
        "LeaseStatus": "unlocked",
        "LeaseState": "available",
    }
    written = "".join(f"<{key}>{_escape(value)}</{key}>" for key, value in values.items() if value)
    metadata = ""
    if with_metadata:
        inner = "".join(f"<{key}>{_escape(value)}</{key}>" for key, value in blob.properties.metadata.items())
        metadata = f"<Metadata>{inner}</Metadata>"
    return f"<Blob>{named}<Properties>{written}</Properties>{metadata}</Blob>"


_LIST = frozenset({"prefix", "delimiter", "marker", "maxresults", "include"})
_OPERATIONS = {
    ("PUT", "", "", True): _Operation("cw", _put_blob),
    ("PUT", "", "block", True): _Operation("cw", _put_block, frozenset({"blockid"})),
    ("PUT", "", "blocklist", True): _Operation("cw", _put_block_list),
    ("PUT", "", "metadata", True): _Operation("w", _put_metadata),
    ("GET", "", "", True): _Operation("r", _get_blob),
    ("HEAD", "", "", True): _Operation("r", _get_blob),
    ("DELETE", "", "", True): _Operation("d", _delete_blob),
    ("GET", "container", "list", False): _Operation("l", _list_blobs, _LIST),
    ("GET", "container", "", False): _Operation("rl", _show_container),
    ("HEAD", "container", "", False): _Operation("rl", _show_container),
}
"""By method, ``restype``, ``comp``, and whether a blob is named."""
