"""Integers at addresses: what compiled programs read batches with, and write memtables with.

`load(address)` and `load_half(address)` return the signed integer of 64 or 32 bits at an address, `load_byte(address)`
the byte there, without a sign; `store(address, value)` writes 64 bits, `store_byte(address, value)` a byte. Nothing is
checked: `ikebana.kernels.addresses` says which addresses are valid. `prefetch(address)` brings what is at an address
into the processor's caches; it may be any address.
"""

from __future__ import annotations

import ctypes
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from ikebana.kernels.compile import is_compiled

_WORD, _HALF, _BYTE = ir.IntType(64), ir.IntType(32), ir.IntType(8)


def _load(context: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(builder.inttoptr(arguments[0], _WORD.as_pointer()))

    return types.int64(types.int64), generate


def _load_half(context: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.sext(builder.load(builder.inttoptr(arguments[0], _HALF.as_pointer())), _WORD)

    return types.int64(types.int64), generate


def _load_byte(context: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.zext(builder.load(builder.inttoptr(arguments[0], _BYTE.as_pointer())), _WORD)

    return types.int64(types.int64), generate


def _store(context: Any, address: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store(arguments[1], builder.inttoptr(arguments[0], _WORD.as_pointer()))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


def _store_byte(context: Any, address: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte = builder.trunc(arguments[1], _BYTE)
        builder.store(byte, builder.inttoptr(arguments[0], _BYTE.as_pointer()))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


def _prefetch(context: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer, number = _BYTE.as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        function = builder.module.declare_intrinsic("llvm.prefetch", [pointer], kind)
        read, keep, data = number(0), number(3), number(1)
        builder.call(function, [builder.inttoptr(arguments[0], pointer), read, keep, data])
        return context.get_dummy_value()

    return types.void(types.int64), generate


def _plain_load(address: int) -> int:
    return ctypes.c_int64.from_address(int(address)).value


def _plain_load_half(address: int) -> int:
    return ctypes.c_int32.from_address(int(address)).value


def _plain_load_byte(address: int) -> int:
    return ctypes.c_uint8.from_address(int(address)).value


def _plain_store(address: int, value: int) -> None:
    ctypes.c_int64.from_address(int(address)).value = int(value)


def _plain_store_byte(address: int, value: int) -> None:
    ctypes.c_uint8.from_address(int(address)).value = int(value)


def _plain_prefetch(address: int) -> None:
    pass


load: Any = intrinsic(_load) if is_compiled() else _plain_load
load_half: Any = intrinsic(_load_half) if is_compiled() else _plain_load_half
store: Any = intrinsic(_store) if is_compiled() else _plain_store
load_byte: Any = intrinsic(_load_byte) if is_compiled() else _plain_load_byte
store_byte: Any = intrinsic(_store_byte) if is_compiled() else _plain_store_byte
prefetch: Any = intrinsic(_prefetch) if is_compiled() else _plain_prefetch
