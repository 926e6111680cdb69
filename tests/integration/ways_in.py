#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One rank of a Python program that reaches NCCL through ctypes, as several frameworks do.

  ways_in.py first     all ranks send to all; every byte is checked
"""

import ctypes
import os
import socket
import sys
import time

ELEMENTS = 4096
NCCL_UINT8 = 1
TO_DEVICE, TO_HOST = 1, 2


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]


def check(result, call):
    if result != 0:
        sys.exit(f"{call} returned {result}")


def share(rank, ranks, ident):
    """Rank 0 hands its unique id to the others."""
    address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    if rank == 0:
        with socket.create_server(address, backlog=ranks) as listener:
            for _ in range(1, ranks):
                peer, _ = listener.accept()
                with peer:
                    peer.sendall(bytes(ident))
        return
    deadline = time.monotonic() + 60
    while True:
        try:
            peer = socket.create_connection(address, timeout=60)
            break
        except ConnectionRefusedError:  # rank 0 may not have started yet
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
    with peer, peer.makefile("rb") as stream:
        ctypes.memmove(ctypes.byref(ident), stream.read(128), 128)


def main():
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    cuda, nccl = ctypes.CDLL("libcudart.so.12"), ctypes.CDLL("libnccl.so.2")
    check(cuda.cudaSetDevice(int(os.environ["LOCAL_RANK"])), "cudaSetDevice")

    ident, comm = UniqueId(), ctypes.c_void_p()
    if rank == 0:
        check(nccl.ncclGetUniqueId(ctypes.byref(ident)), "ncclGetUniqueId")
    share(rank, ranks, ident)
    nccl.ncclCommInitRank.argtypes = [ctypes.c_void_p, ctypes.c_int, UniqueId, ctypes.c_int]
    check(nccl.ncclCommInitRank(ctypes.byref(comm), ranks, ident, rank), "ncclCommInitRank")

    source, target, stream = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    size = ELEMENTS * ranks
    check(cuda.cudaMalloc(ctypes.byref(source), ctypes.c_size_t(size)), "cudaMalloc")
    check(cuda.cudaMalloc(ctypes.byref(target), ctypes.c_size_t(size)), "cudaMalloc")
    check(cuda.cudaStreamCreate(ctypes.byref(stream)), "cudaStreamCreate")
    sent = bytes((rank * 16 + peer) % 256 for peer in range(ranks) for _ in range(ELEMENTS))
    check(cuda.cudaMemcpy(source, sent, ctypes.c_size_t(size), TO_DEVICE), "cudaMemcpy")

    check(nccl.ncclGroupStart(), "ncclGroupStart")
    for peer in range(ranks):
        for function, base in ((nccl.ncclSend, source), (nccl.ncclRecv, target)):
            check(function(ctypes.c_void_p(base.value + peer * ELEMENTS),
                           ctypes.c_size_t(ELEMENTS), NCCL_UINT8, peer, comm, stream), "message")
    check(nccl.ncclGroupEnd(), "ncclGroupEnd")
    check(cuda.cudaStreamSynchronize(stream), "cudaStreamSynchronize")

    got = ctypes.create_string_buffer(size)
    check(cuda.cudaMemcpy(got, target, ctypes.c_size_t(size), TO_HOST), "cudaMemcpy")
    wanted = bytes((peer * 16 + rank) % 256 for peer in range(ranks) for _ in range(ELEMENTS))
    if got.raw != wanted:
        sys.exit("wrong bytes arrived")
    check(nccl.ncclCommDestroy(comm), "ncclCommDestroy")


if __name__ == "__main__":
    main()
