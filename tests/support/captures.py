"""One sample of every kind of PDU, of any release: what a release's frozen capture is made of.

`python tests/support/captures.py FILE` writes one, with whichever `antiphon` can be imported. A capture is made once,
when a version of the wire is released, and never again.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

import antiphon.protocol
from antiphon.protocol.wire import Codec, Header, Pdu, group_tag

GROUP = "captured"
HEADER = Header(group_tag(GROUP), 3, 1, 7, 20)

_FITTING: dict[str, dict[str, Any]] = {  # where a struct's fields must fit together
    "GroupView": {"number": 2, "members": (0, 1, 20002), "sent_before": (3, 4, 5), "elders": 2},
    "Cut": {"reach": (3, 4, 5), "holders": (0, 1, 20002)},
    "Change": {"old": (1, (1, 0))},
}


def kinds() -> list[type[Pdu]]:
    """Return every class of PDU that the package defines, by tag."""
    for module in pkgutil.walk_packages(antiphon.protocol.__path__, "antiphon.protocol."):
        importlib.import_module(module.name)
    found = {kind for kind in _below(Pdu) if kind.__module__.startswith("antiphon.")}
    tagged = [kind for kind in found if isinstance(kind.__struct_config__.tag, int)]
    return sorted(tagged, key=lambda kind: kind.__struct_config__.tag)


def _below(kind: type) -> Iterator[type]:
    for one in kind.__subclasses__():
        yield one
        yield from _below(one)


def named(kind: type[Pdu]) -> str:
    """Return a name for a kind that no other has."""
    return f"{kind.__struct_config__.tag} {kind.__name__}"


def sample(info: Any) -> Any:
    """Return a value of a type, always the same one."""
    inspect = msgspec.inspect
    match info:
        case inspect.StructType(cls=cls, fields=fields):
            fitting = _FITTING.get(cls.__name__, {})
            values = {field.name: fitting.get(field.name, sample(field.type)) for field in fields}
            return cls(**{field.name: values[field.encode_name] for field in fields})
        case inspect.UnionType(types=types):
            return sample(next(one for one in types if not isinstance(one, inspect.NoneType)))
        case inspect.TupleType(item_types=types):
            return tuple(sample(one) for one in types)
        case inspect.VarTupleType(item_type=one):
            return (sample(one), sample(one))
        case inspect.ListType(item_type=one):
            return [sample(one), sample(one)]
        case inspect.LiteralType(values=values):
            return values[0]
        case inspect.IntType(ge=least):
            return (least or 0) + 5
        case inspect.BoolType():
            return True
        case inspect.BytesType(min_length=length):
            return b"captured"[: length or 8]
        case inspect.StrType():
            return "text"
    raise NotImplementedError(info)


def capture() -> dict[str, dict[str, Any]]:
    """Return every kind of PDU: its value, and a frame of its own."""
    codec: Any = Codec(kinds())
    frame: Callable[[Any], bytes] = lambda pdu: Codec.frame(HEADER, [codec.encode_pdu(pdu)])  # noqa: E731
    samples = {named(kind): sample(msgspec.inspect.type_info(kind)) for kind in kinds()}
    return {name: {"value": msgspec.to_builtins(pdu), "frame": frame(pdu).hex()} for name, pdu in samples.items()}


if __name__ == "__main__":
    lines = [f" {json.dumps(name)}: {json.dumps(one)}" for name, one in capture().items()]
    Path(sys.argv[1]).write_text("{\n" + ",\n".join(lines) + "\n}\n")
