# SPDX-License-Identifier: Apache-2.0
"""TransferEngine, as Mooncake's mooncake.engine has it, over weir.

Addresses and results are integers. Any thread may call any method of an engine at any time; a call
that may take long does not hold the GIL. The manual is docs/mooncake.md of weir.
"""
import enum

from mooncake import _engine
from mooncake._engine import InnerTransferEngine, TransferEngine

__all__ = ["InnerTransferEngine", "SUPPORT_CUDA", "TransferEngine", "TransferNotify", "TransferOpcode"]

SUPPORT_CUDA = False


class TransferOpcode(enum.IntEnum):
    """Which way bytes move."""

    Read = 0
    Write = 1


class TransferNotify:
    """A notification: two strings."""

    __slots__ = ("name", "msg")

    def __init__(self, name="", msg=""):
        self.name = name
        self.msg = msg

    def __repr__(self):
        return f"TransferNotify({self.name!r}, {self.msg!r})"


_engine._set_classes(TransferNotify)
