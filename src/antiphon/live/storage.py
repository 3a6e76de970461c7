"""The state folder: the little that a name must not forget, in files that are whole or absent."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Final, Protocol, TypeVar

import msgspec

from antiphon.errors import UsageError
from antiphon.live.addresses import Address, show
from antiphon.live.hello import Contact, Founding
from antiphon.protocol.membership.process import Saved

FORMAT: Final = 1  # of the files; 0.1.0's had no number


class Disk(Protocol):
    """Small files that survive a crash."""

    def read(self, path: Path) -> bytes:
        """Read a file; raise as `Path.read_bytes` does."""

    def write(self, path: Path, content: bytes, *, may_wait: bool = False) -> None:
        """Write a file so that it is either the old or the new one, whatever happens.

        What `may_wait` survives the process at once, and the machine soon: nobody waits for the disk.
        """


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """What a member that finds its group by discovery keeps, whatever its address is."""

    antiphon: int = FORMAT
    name: str
    founding: Founding | None = None  # of the group when it was last found, where no number was declared


class KeptState(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a member's file: what it must not forget, and what a person needs to know about it."""

    antiphon: int = FORMAT
    group: str
    member: str
    names: dict[int, str]  # of the members, by number
    saved: bytes  # what the machine persisted
    bind: str = ""  # the address that it holds while it runs
    addresses: dict[int, str] = {}  # where those were last whom it has found by discovery, by number


_Kept = TypeVar("_Kept", Memory, KeptState, Saved)
_decode_saved = msgspec.msgpack.Decoder(Saved).decode


class StateFolder:
    """What a group's members on this machine keep: their incarnations and votes, names, and who founded the group."""

    def __init__(self, disk: Disk, folder: str | PathLike[str] | None, group: str, bind: str = "") -> None:
        self._disk, self._group, self._bind = disk, group, bind
        self._folder = default_folder() if folder is None else Path(folder)

    def memory(self, bind: str) -> Memory | None:
        """Return what the member that binds there remembers, or None the first time."""
        path = self._memory_file(bind)
        content = _read(self._disk, path)
        if content is None:
            return None
        memory = _decoded(path, content, msgspec.json.Decoder(Memory).decode)
        _check_format(path, memory)
        return memory

    def memory_of_an_address(self, own: Address) -> Memory | None:
        """Return what version 0.1.0 remembered at an address."""
        path = self._folder / f"{digest(self._group, show(own))}.founders"
        content = _read(self._disk, path)
        return None if content is None else _decoded(path, content, lambda text: _memory_of(own, text))

    def remember(self, bind: str, memory: Memory) -> None:
        """Keep what the member that binds there is to remember."""
        _write(self._disk, self._memory_file(bind), msgspec.json.encode(memory))

    def _memory_file(self, bind: str) -> Path:
        return self._folder / f"{digest(self._group, bind)}.member"

    def member(
        self,
        founders: Sequence[str],
        me: int,
        names: Mapping[int, str] | None = None,
        found: Mapping[int, Contact] | None = None,
    ) -> MemberFile:
        """Return the file of one member; `names` are those of the members, and `found` says where they are."""
        path = self._folder / f"{digest(self._group, list(founders), me)}.state"
        return MemberFile(self._disk, path, self._group, me, names or {}, found or {}, self._bind)


class MemberFile:
    """The incarnation and the votes of one member."""

    def __init__(
        self,
        disk: Disk,
        path: Path,
        group: str,
        me: int,
        names: Mapping[int, str],
        found: Mapping[int, Contact],
        bind: str,
    ) -> None:
        self._disk, self._path, self._group, self._me, self._names = disk, path, group, me, names
        self._found, self._bind = found, bind

    def read(self) -> bytes | None:
        """Return what was persisted last, or None the first time."""
        kept = self._read()
        return kept.saved if isinstance(kept, KeptState) else kept

    def _read(self) -> KeptState | bytes | None:
        content = _read(self._disk, self._path)
        if content is None:
            return None
        kept = read_kept(self._path, content)
        saved_in(self._path, kept)  # whatever is wrong with it is said here
        if isinstance(kept, bytes):
            return kept
        own = self._names.get(self._me, kept.member)
        if kept.group != self._group or kept.member not in (own, str(self._me)):
            theirs = f"{kept.member} in {kept.group!r}"
            raise UsageError(f"state: {self._path} is of {theirs}, not of {own} in {self._group!r}; give each its own")
        return kept

    @property
    def knows_view(self) -> bool:
        """Whether the member has been in a view, or has heard of one."""
        saved = self.read()
        return saved is not None and _decode_saved(saved).view.number > 0

    def contacts(self) -> list[Contact]:
        """Return where the others of its group were last, as far as it had found them."""
        kept = self._read()
        if not isinstance(kept, KeptState) or not self.knows_view:
            return []
        found = kept.addresses.items()
        return [Contact(kept.names[other], at) for other, at in found if other != self._me and other in kept.names]

    def write(self, state: bytes, *, may_wait: bool = False) -> None:
        """Persist; what `may_wait` keeps nobody waiting for the disk."""
        names = dict(self._names)
        member = names.get(self._me, str(self._me))
        addresses = {number: one.address for number, one in self._found.items()}
        kept = KeptState(
            group=self._group, member=member, names=names, saved=state, bind=self._bind, addresses=addresses
        )
        _write(self._disk, self._path, msgspec.msgpack.encode(kept), may_wait=may_wait)


def _read(disk: Disk, path: Path) -> bytes | None:
    """Return the content of a file of the state folder, or None if there is none.

    A file that cannot be read raises an error: a member must not go on as if it had never voted.
    """
    try:
        return disk.read(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"state: {path}: {error.strerror}; mend that, or name a folder of your own") from error


def _write(disk: Disk, path: Path, content: bytes, *, may_wait: bool = False) -> None:
    try:
        disk.write(path, content, may_wait=may_wait)
    except OSError as error:
        raise UsageError(f"state: {path}: {error.strerror}; mend that, or name a folder of your own") from error


def _memory_of(own: Address, founders: bytes) -> Memory:
    try:
        return Memory(name=show(own), founding=Founding(tuple(founders.decode().split())))
    except UnicodeDecodeError as error:
        raise msgspec.DecodeError(str(error)) from None


def read_kept(path: Path, content: bytes) -> KeptState | bytes:
    """Take the content of a member's file apart; what version 0.1.0 wrote is the persisted state alone."""
    if content[:1] >= b"\x90":  # an array; later formats are maps
        return content
    kept = _decoded(path, content, msgspec.msgpack.Decoder(KeptState).decode)
    _check_format(path, kept)
    return kept


def saved_in(path: Path, kept: KeptState | bytes) -> Saved:
    """Return what the machine persisted in a member's file."""
    return _decoded(path, kept if isinstance(kept, bytes) else kept.saved, _decode_saved)


def _decoded(path: Path, content: bytes, decode: Callable[[bytes], _Kept]) -> _Kept:
    """Decode a file of the state folder, or say in one line why it cannot be used."""
    try:
        return decode(content)
    except msgspec.MsgspecError:
        raise UsageError(f"state: {path} is damaged, or of another program; name a folder of your own") from None


def _check_format(path: Path, kept: Memory | KeptState) -> None:
    if kept.antiphon > FORMAT:
        raise UsageError(f"state: {path} was written by a newer Antiphon (format {kept.antiphon}); use that, or newer")


def default_folder() -> Path:
    """Return where state is kept if no folder is named."""
    try:
        return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "antiphon"
    except RuntimeError:
        raise UsageError("state: this user has no home directory to keep it in; name a folder of your own") from None


def digest(*about: object) -> str:
    """Return a short name for a combination of values."""
    return hashlib.sha256(repr(about).encode()).hexdigest()[:16]
