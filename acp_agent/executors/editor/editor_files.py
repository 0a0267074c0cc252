"""Text in the editor's buffers: ACP's `fs/*`, through `Client`.

The disk answers what the protocol does not cover (stat, list, bytes): the editor runs on this machine.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import anyio
import anyio.to_thread
from msgspec.structs import replace

from acp_agent.errors import AgentError, ExecutorError, MethodNotFound, PeerError
from acp_agent.executors import files
from acp_agent.executors.base import ChangedMeanwhile, FileVersion, Offer, digest_of
from acp_agent.executors.beneath import folder, regular
from acp_agent.executors.disk_files import DiskFiles
from acp_agent.executors.encodings import BYTE_ORDER, UTF8, line_feeds, lossy
from acp_agent.executors.forwarding_files import ForwardingFiles
from acp_agent.executors.tree_walk import unmake
from acp_agent.executors.unmoved import Way, way_to
from acp_agent.protocol.client import Client

log = logging.getLogger(__name__)

NO_BUFFER = (MethodNotFound.code, -32602, -32002)
"""Answers that mean that the client has no text of its own of that file: no reading, not that path, no such file."""
DISK_USED = "It is in {}, which the editor does not show: the file on the disk is used."
UNKNOWN = "\ufffd"
"""What decoders put in the place of bytes they cannot decode."""
MOVED = (
    "{} was not read: folders on the way to it changed while the editor read it, and the editor's text is not that on "
    "the disk. Try again when no command runs, or ask the user to save it"
)
ELSEWHERE = (
    "A folder on the way to {} changed while the editor wrote it: the editor may have written the text to another "
    "place. Tell the user."
)
TRIES, SETTLES = 8, 0.01
"""How often, and after how many seconds, the editor is asked again if the folders on the way changed meanwhile."""


class EditorFiles(ForwardingFiles[DiskFiles]):
    """Implements `Files`: text comes from the editor's buffers and goes there as far as `offer` says, all else is the
    disk's. `folders`: the session's, resolved."""

    def __init__(self, disk: DiskFiles, client: Client, offer: Offer, folders: Sequence[Path] = ()) -> None:
        super().__init__(disk)
        self._client = client
        self._offer = offer
        self._tops = list(folders)
        self._unread: dict[Path, Exception] = {}
        """Files whose text the client did not return when it was last asked."""

    async def read(self, path: Path) -> FileVersion:
        return (await self._look(path))[0] if self._offer.read_text else await self._files.read(path)

    async def _look(self, path: Path) -> tuple[FileVersion, FileVersion | None]:
        """What the editor shows, and what is on the disk, if that is text. Raises as `read`."""
        for _ in range(TRIES):
            await self._files.need_plain(path)
            before = await self._way(path)
            try:
                text = await self._client.read_text_file(path)
            except (AgentError, TimeoutError) as error:
                # Clients report a missing file in many ways, and some cannot read outside their workspace: the disk
                # decides.
                self._unread[path] = error
                if not isinstance(error, TimeoutError) and await self._files.stat(path) is None:
                    del self._unread[path]
                found = await self._files.read(path)
                return found, found
            self._unread.pop(path, None)
            if not text and await self._files.stat(path) is None:
                raise FileNotFoundError(2, "No such file or directory", str(path))
            shown, disk = await self._with_what_was_lost(path, text)
            # Another text is that of unsaved changes, unless the editor was led to another file.
            if (disk is not None and shown.text == disk.text) or before.stands(await self._way(path)):
                return shown, disk
            await anyio.sleep(SETTLES)
        raise ExecutorError(MOVED.format(path))

    async def _way(self, path: Path, tries: int = 1) -> Way:
        """`tries`: how often it may be looked at until it is settled."""
        way = await anyio.to_thread.run_sync(way_to, path, self._tops)
        if not way.settled and tries > 1:
            await anyio.sleep(SETTLES)
            return await self._way(path, tries - 1)
        return way

    async def _with_what_was_lost(self, path: Path, text: str) -> tuple[FileVersion, FileVersion | None]:
        """The client's text, with the disk's line endings if the client normalised them to line feeds (Toad 0.6), and
        what is on the disk.

        The disk's, if the client lost what is not UTF-8. Raises UnicodeDecodeError if it did so with a binary file.
        """
        text = text.removeprefix(BYTE_ORDER)
        try:
            disk = await self._files.read(path)
        except UnicodeDecodeError:
            data = await self._files.read_bytes(path, -1)
            if lossy(text, data, None):
                raise
            return FileVersion(text, digest_of(data)), None
        except (OSError, ExecutorError):
            return FileVersion(text), None
        if disk.encoding.codec != UTF8.codec and await self._is_lossy(path, text, disk):
            return replace(disk, remark=DISK_USED.format(disk.encoding.name)), disk
        same = text in (disk.text, line_feeds(disk.text))
        return (disk if same else replace(disk, text=text)), disk

    async def _is_lossy(self, path: Path, shown: str, disk: FileVersion) -> bool:
        """Whether the client shows the file, which is not UTF-8, in the wrong encoding. Raises ExecutorError where
        unsaved changes come on top."""
        if lossy(shown, await self._files.read_bytes(path, -1), disk.text):
            return True
        if UNKNOWN in shown and UNKNOWN not in disk.text:
            raise ExecutorError(
                f"{path} is in {disk.encoding.name}. The editor does not show it right and has unsaved changes of it: "
                "ask the user to close it there"
            )
        return False

    async def write(
        self, path: Path, text: str, expected: FileVersion | None = None, *, again: bool = True
    ) -> FileVersion:
        if expected is not None and again and self._offer.read_text:
            old = await self._need_shown_as(path, expected)
        else:
            old = await self._files.find_version(path)
            await self._files.need_expected(path, expected, old)
        if not self._offer.write_text:
            return await self._files.write_like(path, text, old)
        await self._files.need_plain(path)
        if old is not None and old.encoding.codec != UTF8.codec and await self._shown_wrong(path, old):
            now = await self._files.write_like(path, text, old)
            return replace(now, remark=f"{DISK_USED.format(old.encoding.name)} {now.remark}".rstrip())
        if (unread := self._unread.get(path)) is not None:
            return await self._written_unread(path, text, unread, old)
        if old is not None and await anyio.to_thread.run_sync(files.has_other_names, path):
            return await self._files.write_like(path, text, old)  # Most editors would write in place.
        before = None if old is None else old.text
        made = 0
        if before is None:
            made = await self._files.make_directory(path.parent)  # some clients fail where the parent is missing
        way = await self._way(path, TRIES)
        try:
            written = await self._written_by_editor(path, text)
        except PeerError as error:
            if error.code == MethodNotFound.code:
                return await self._files.write_like(path, text, old)
            await anyio.to_thread.run_sync(unmake, path.parent, made)
            raise ExecutorError(f"the editor refused to write {path}: {error.message}") from error
        except TimeoutError as error:
            raise ExecutorError(f"{error}; it is unknown whether {path} was written") from error
        except OSError as error:
            raise ExecutorError(f"{path}: {error.strerror or error}") from error
        if not await self._is_unmoved(path, way, text, before, None if written is None else written.text):
            return await self._written_again(path, text, old)
        new = written if written is not None and written.text == text else await self._files.find_version(path)
        if old is not None and new is not None and UTF8 == new.encoding != old.encoding:
            return await self._files.write_like(path, new.text, old)  # The client wrote UTF-8.
        if new is not None and (new.text == text or new.text != before):
            return new
        # The disk is unchanged. Either the buffer has the change unsaved, or nothing happened at all.
        shown = await self._shown(path)
        if shown is not None and shown == text and shown != (before or ""):
            return replace(new or FileVersion(""), text=shown)
        return await self._files.write_like(path, text, old)

    async def _need_shown_as(self, path: Path, expected: FileVersion) -> FileVersion | None:
        """What is on the disk. Raises ChangedMeanwhile if the editor shows, or the disk has, something else."""
        now = disk = None
        try:
            now, disk = await self._look(path)
        except FileNotFoundError:
            pass
        except UnicodeDecodeError as error:
            raise ChangedMeanwhile(path) from error
        if not expected.is_still(now):
            raise ChangedMeanwhile(path)
        return disk

    async def _written_by_editor(self, path: Path, text: str) -> FileVersion | None:
        """Returns what is then in the file of the folder that was at the path before."""
        with folder(path.parent) as parent:
            await self._client.write_text_file(path, text)
            return await anyio.to_thread.run_sync(_version_in, parent, path)

    async def _is_unmoved(self, path: Path, way: Way, text: str, before: str | None, written: str | None) -> bool:
        """Whether the editor cannot have written elsewhere. `written`: what is in the folder that was at the path."""
        if written == text:
            return True
        try:
            after = await self._way(path)
        except ExecutorError:
            return False
        # Editors that save by renaming change the file's own folder, and some format what they save.
        return way.stands(after) or (written not in (None, before) and way.stands_above(after))

    async def _written_again(self, path: Path, text: str, old: FileVersion | None) -> FileVersion:
        log.warning("%s", ELSEWHERE.format(path))
        try:
            now = await self._files.write_like(path, text, old)
        except (ExecutorError, OSError) as error:
            raise ExecutorError(f"{ELSEWHERE.format(path)} It could not be written directly either: {error}") from error
        return replace(now, remark=f"{ELSEWHERE.format(path)} It was then written directly. {now.remark}".rstrip())

    async def _written_unread(self, path: Path, text: str, error: Exception, old: FileVersion | None) -> FileVersion:
        """Never over a buffer whose text the client did not return: it may have unsaved changes."""
        if isinstance(error, PeerError) and error.code in NO_BUFFER:
            return await self._files.write_like(path, text, old)
        raise ExecutorError(
            f"the editor did not return its text of {path} ({error}), which may have unsaved changes, so nothing was "
            "written. Try again, or ask the user to save and close the file"
        ) from error

    async def _shown_wrong(self, path: Path, disk: FileVersion) -> bool:
        """Whether the client would write UTF-8 into a file that it cannot read."""
        shown = await self._shown(path)
        return shown is None or await self._is_lossy(path, shown.removeprefix(BYTE_ORDER), disk)

    async def _shown(self, path: Path) -> str | None:
        try:
            return await self._client.read_text_file(path) if self._client.plan.reads_files else None
        except (AgentError, TimeoutError):
            return None


def _version_in(parent: int, path: Path) -> FileVersion | None:
    """The file in an open folder, if it is text."""
    try:
        with regular(parent, path) as descriptor, open(descriptor, "rb", closefd=False) as file:
            return files.version_of(file.read())
    except (OSError, ExecutorError, UnicodeDecodeError):
        return None
