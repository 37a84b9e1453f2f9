#!/usr/bin/env python3
"""Golden messages of DH-HMAC-CHAP, computed with Python's hashlib, hmac and pow alone.

    python3 nvme-proto/auth/tests/vectors.py > nvme-proto/auth/tests/vectors.txt

Each line: hash, group, transformation, then SHA-256 of the challenge's, of the reply's and of the
success message's bytes. Random bytes are those of the counter that `exchange.rs` uses. The primes are
computed by the formula of RFC 7919, appendix A.
"""

import hashlib
import hmac
import struct

HOST = b"nqn.2014-08.org.nvmexpress:uuid:0d2c54d4-3b7a-4d7c-9d37-0fb4d0a1a2b3"
SUBSYSTEM = b"nqn.2024-01.com.example:db"
TRANSACTION = 0x1234
HASHES = {"sha256": 1, "sha384": 2, "sha512": 3}
GROUPS = {"null": 0, "ffdhe2048": 1, "ffdhe3072": 2, "ffdhe4096": 3, "ffdhe6144": 4, "ffdhe8192": 5}
OFFSETS = {2048: 560316, 3072: 2625351, 4096: 5736041, 6144: 15705020, 8192: 10965728}


def e_times_two_to(bits):
    total, term, count = 0, 1 << (bits + 64), 0
    while term:
        total += term
        count += 1
        term //= count
    return total >> 64


def prime(bits):
    middle = (e_times_two_to(bits - 130) + OFFSETS[bits]) * 2**64
    return 2**bits - 2 ** (bits - 64) + middle - 1


def counter(seed):
    """Pseudorandom bytes of a seed."""
    state = seed
    while True:
        state = (state * 29 + 7) % 256
        yield state


def take(stream, length):
    return bytes(next(stream) for _ in range(length))


def exponent(stream):
    drawn = bytearray(take(stream, 64))
    drawn[0] |= 0x80
    return int.from_bytes(drawn, "big")


def transformed(name, key, nqn):
    if name == "none":
        return key
    return hmac.new(key, nqn + b"NVMe-over-Fabrics", name).digest()


def response(name, key, challenge, common, seqnum, label, own, other):
    if common:
        challenge = hmac.new(hashlib.new(name, common).digest(), challenge, name).digest()
    text = challenge + struct.pack("<IHB", seqnum, TRANSACTION, 0) + label + own + b"\0" + other
    return hmac.new(key, text, name).digest()


def exchange(name, group, transformation):
    controller, host = counter(1), counter(2)
    length = hashlib.new(name).digest_size
    c1 = take(controller, length)
    a = b = y_controller = y_host = common = b""
    if group != "null":
        bits = int(group[5:])
        p = prime(bits)
        a, b = exponent(controller), exponent(host)
        y_controller = pow(2, a, p).to_bytes(bits // 8, "big")
        y_host = pow(2, b, p).to_bytes(bits // 8, "big")
        common = pow(2, a * b, p).to_bytes(bits // 8, "big")
    c2 = take(host, length)
    host_key = transformed(transformation, bytes(range(length)), HOST)
    controller_key = transformed(transformation, bytes(range(100, 100 + length)), SUBSYSTEM)
    r1 = response(name, host_key, c1, common, 7, b"HostHost", HOST, SUBSYSTEM)
    r2 = response(name, controller_key, c2, common, 9, b"Controller", SUBSYSTEM, HOST)
    ids = (HASHES[name], GROUPS[group])
    challenge = struct.pack("<BBHHBBBBHI", 1, 1, 0, TRANSACTION, length, 0, *ids, len(y_controller), 7)
    reply = struct.pack("<BBHHBBBBHI", 1, 2, 0, TRANSACTION, length, 0, 1, 0, len(y_host), 9)
    success = struct.pack("<BBHHBBB7x", 1, 3, 0, TRANSACTION, length, 0, 1)
    return challenge + c1 + y_controller, reply + r1 + c2 + y_host, success + r2


if __name__ == "__main__":
    for name in HASHES:
        for group in GROUPS:
            for transformation in ("none", name):
                messages = exchange(name, group, transformation)
                digests = [hashlib.sha256(message).hexdigest() for message in messages]
                print(name, group, transformation, *digests)
