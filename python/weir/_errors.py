# SPDX-License-Identifier: Apache-2.0
"""Exceptions of weir: one class for each code of the library, sorted into its three classes.

WeirError
  RetryError     nothing happened; the same call may work later
  TransferError  this call or transfer failed, for what it was given; all else goes on
  EndpointError  this peer, or the engine, cannot be used any more

Where Python has an exception that means the same, a class is one of these, too: a deadline is a
TimeoutError, a segment outside its memory an IndexError, a peer that died a ConnectionError.
"""
from . import _weir


class WeirError(Exception):
    """Any error of the library. str() is what it was about, and the library's sentence.

    code: the number, negative, one of weir.EAGAIN, ...; name: "WEIR_EAGAIN", ...;
    sentence: the library's, in English; about: the call or transfer that failed.
    segment: the number of the segment that is wrong, where one of them is, or None. A TypeError or
    ValueError about one of a list has it, too.
    """

    code = 0
    name = ""
    sentence = ""
    segment = None

    def __init__(self, about=""):
        super().__init__(about)
        self.about = about

    def __str__(self):
        return f"{self.about}: {self.sentence} ({self.name})" if self.about else self.sentence

    def __repr__(self):
        return f"{type(self).__name__}({str(self)!r})"


class RetryError(WeirError):
    """Nothing happened; the same call may work later."""


class TransferError(WeirError):
    """This call or transfer failed, for what it was given; the engine and the peer go on."""


class EndpointError(WeirError):
    """This peer, or the engine, cannot be used any more."""


class AgainError(RetryError):
    """A bounded queue or pool is full: make progress, drop what has ended, and try again."""
    code = -1


class InProgressError(RetryError, TimeoutError):
    """The time of a wait passed. The work that was waited for goes on."""
    code = -2


class NotReadyError(RetryError, TimeoutError):
    """Not connected yet, or the peer has nothing of this name, in the time that there was; of a
    message: it has no such inbox."""
    code = -3


class InvalidError(TransferError, ValueError):
    """An argument is wrong, or memory is of another peer or engine; of a transfer: the device found
    fault with local memory."""
    code = -10


class BoundsError(TransferError, IndexError):
    """A segment, or a part, is outside its memory."""
    code = -11


class AccessError(TransferError, PermissionError):
    """The peer did not grant that access, or the memory is for this side only."""
    code = -12


class StaleError(TransferError):
    """A handle or descriptor of what was released, closed, or is of a peer's incarnation that died."""
    code = -13


class TimedOutError(TransferError, TimeoutError):
    """The transfer's deadline passed. Any part of its bytes may be in place."""
    code = -14


class CanceledError(TransferError):
    """The transfer was cancelled. Any part of its bytes may be in place."""
    code = -15


class OutOfMemoryError(TransferError, MemoryError):
    """Out of memory, here."""
    code = -16


class NotSupportedError(TransferError):
    """Not supported by this device, or memory of a device that does not reach ours."""
    code = -17


class TooBigError(TransferError, ValueError):
    """Over a stated limit."""
    code = -18


class BusyError(TransferError):
    """Still in use by a transfer; of an inbox: its number is taken."""
    code = -19


class UnknownOutcomeError(TransferError):
    """It may have been done, or not, or in part, or still will be: the peer left, or was silent."""
    code = -20


class RemoteError(TransferError):
    """The target's device refused the operation: its memory was released, say."""
    code = -21


class DescriptorsError(TransferError, OSError):
    """Out of file descriptors."""
    code = -22


class LockedMemoryError(TransferError, MemoryError):
    """RLIMIT_MEMLOCK does not allow to register so much memory."""
    code = -23


class ConnectError(EndpointError, ConnectionError):
    """No connection to the peer within the time-out."""
    code = -30


class PeerError(EndpointError, ConnectionError):
    """The peer is gone, or was restarted."""
    code = -31


class RefusedError(EndpointError, ConnectionRefusedError):
    """The peer refused the connection; it says why."""
    code = -32


class ClosedError(EndpointError, ValueError):
    """The engine or the peer's handle was closed, or the engine is a parent process's."""
    code = -33


class DeviceError(EndpointError, OSError):
    """The device failed."""
    code = -34


class AddressError(EndpointError, ValueError):
    """The address cannot be parsed, resolved or bound, or is a wildcard or our own."""
    code = -35


class NoDeviceError(EndpointError, OSError):
    """No such device here."""
    code = -36


class FullError(EndpointError):
    """No room for another peer, or inbox to send to."""
    code = -37


class DeniedError(EndpointError, PermissionError):
    """The system does not let the two processes share memory."""
    code = -38


class UnreachableError(EndpointError, ConnectionError):
    """No route to the peer's address, or no name server answers."""
    code = -39


CLASSES = {value.code: value for value in list(globals().values())
           if isinstance(value, type) and issubclass(value, WeirError) and value.code}
_KINDS = {1: RetryError, 2: TransferError, 3: EndpointError}
CODES = {}  # "EAGAIN": -1, ...

for _code, _name, _kind, _sentence in _weir.ERRORS:
    _class = CLASSES[_code]
    assert issubclass(_class, _KINDS[_kind]), _name
    _class.name = _name
    _class.sentence = _sentence
    CODES[_name.removeprefix("WEIR_")] = _code



def error(code, about=""):
    """The exception of a code, such as an event's: its class, name and sentence, or to raise it.

    None for 0. Raises ValueError for a number that is no code. about: begins str() of it.
    """
    if code == 0:
        return None
    if code not in CLASSES:
        raise ValueError(f"{code!r} is no code of weir's")
    return CLASSES[code](about)


__all__ = ["error"] + [_name for _name, _value in list(globals().items())
           if isinstance(_value, type) and issubclass(_value, WeirError)]
