"""Mutate valid files: flip, cut, repeat and splice bytes, and replace values in JSON.

All randomness comes from the random.Random that is passed in.
"""

import json
import string

BYTES = (
    *(b"\x00", b"\xff", b"\xfe\xff", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80", b"\x1b[2J"),
    *(b"\r\n", b"\r", b"\n", b"\n\n", b"\t", b" ", b" " * 4096, b"\x85", "\u2028".encode(), "\u0663".encode()),
    *(b"-", b"-1", b"1e999", b"NaN", b"-Infinity", b"null", b"{}", b"[]", b'"', b"\\", b"\\ud800", b'"step"'),
    *(b"9" * 5000, b"18446744073709551616", b"0x10", b"1_000", b"../../etc/passwd", b"%s%n{0}", b"</script>"),
    *("é\u0301".encode(), "\U0010ffff".encode(), "\ufffe".encode(), b"<|endoftext|>", b"#version: 0.2\n"),
)
LONG = (b"[" * 100_000, b'{"a":' * 30_000, b"9" * 200_000, b"x" * 1_000_000, b"a " * 100_000, b"\n" * 100_000)
# JSON values as text; some are valid only in Python.
VALUES = (
    *("null", "true", "false", "0", "-1", "1", "2", "7", "255", "65536", "0.5", "-0.0", "1e-320", "1e308", "1e999"),
    *("-1e999", "NaN", "Infinity", "2147483647", "2147483648", "-2147483649", "9223372036854775807"),
    *("9223372036854775808", "18446744073709551616", "-18446744073709551616", "9" * 400, "9" * 5000),
    *('""', '"x"', '"\\ud800"', '"\\u0000"', '"a\\nb"', '"\\u001b[2J"', '"\\u2028"', '"../../../etc/passwd"'),
    *('"/etc/passwd"', '"/dev/zero"', '"__main__"', '"commands.train"', '"</script>"', '"-1"', '"1e999"', '"%s{0}"'),
    *("[]", "{}", "[[]]", "[null]", "[0]", "[1,-1]", "[NaN]", '{"":null}', '{"a":{"a":[]}}', "[[[[[[[[]]]]]]]]"),
    *('["a","a"]', "[18446744073709551616,18446744073709551616]", "[0,0,0,0,0,0,0,0,0,0,0,0]"),
)
HUGE = (
    "[" * 50_000 + "]" * 50_000,
    '{"a":' * 900 + "1" + "}" * 900,
    f'"{"x" * 300_000}"',
    f"[{'0,' * 50_000}0]",
    "9" * 100_000,
)


def mutate(rng, seed, mutate_parsed):
    """Return the bytes `seed`, changed in one or a few places. mutate_parsed: a mutator such as `of_json`, or None."""
    rounds = rng.choice((1, 1, 1, 2, 3, 8))
    if mutate_parsed is not None and rng.random() < 0.7:
        return mutate_parsed(rng, seed, rounds)
    if rng.random() < 0.002:
        return rng.choice((b"", *LONG, *BYTES))
    data = bytearray(seed)
    for _ in range(rounds):
        _change(rng, data)
    return bytes(data)


def _change(rng, data):
    first = rng.randrange(len(data) + 1)
    last = min(len(data), first + rng.choice((1, 1, 2, 8, 64, 10**6)))
    kind = rng.randrange(9)
    if kind <= 1 and first < len(data):
        data[first] ^= 1 << rng.randrange(8)
    elif kind == 2:
        del data[first:last]
    elif kind == 3:
        data[first:first] = data[first:last]
    elif kind == 4:
        del data[first:]
    elif kind == 5:
        at = rng.randrange(len(data) + 1)
        data[at:at] = data[first:last]
    elif kind == 6:
        data[first:last] = rng.randbytes(last - first if last - first < 100 else 8)
    else:
        data[first:first] = rng.choice(LONG) if rng.random() < 0.003 else rng.choice(BYTES)


def of_json(rng, seed, rounds):
    """Change some values, keys or branches of a JSON text."""
    return as_json(mutate_json(rng, json.loads(seed), rounds))


def of_lines(rng, seed, rounds):
    """Change, repeat or delete some lines of JSON."""
    lines = seed.splitlines()
    for _ in range(rounds):
        at = rng.randrange(len(lines))
        kind = rng.randrange(8)
        if kind == 0 and len(lines) > 1:
            del lines[at]
        elif kind == 1:
            lines.insert(rng.randrange(len(lines)), lines[at])
        else:
            try:
                lines[at] = of_json(rng, lines[at], 1)
            except (ValueError, RecursionError):  # an earlier round left invalid JSON
                pass
    return b"\n".join(lines) + b"\n"


def of_tensors(rng, seed, rounds):
    """Change the header of a safetensors file; its length field may be wrong, and its data cut off."""
    end = 8 + int.from_bytes(seed[:8], "little")
    header = as_json(mutate_json(rng, json.loads(seed[8:end]), rounds))
    length = rng.choice((len(header),) * 12 + (len(header) + 1, 0, 2**63, 2**64 - 1, 2**32, 100_000_000))
    body = seed[end:] if rng.random() < 0.9 else seed[end : end + rng.randrange(len(seed) - end + 1)]
    return length.to_bytes(8, "little") + header + body


class _Raw(str):
    """JSON text to be written as it is."""


def mutate_json(rng, value, rounds):
    """Return a JSON value with a few changes; unchanged parts are shared with the argument."""
    for _ in range(rounds):
        value = _mutate_value(rng, value)
    return value


def _mutate_value(rng, value):
    deeper = isinstance(value, dict | list) and value and rng.random() < 0.85
    if not deeper:
        if isinstance(value, int | float) and not isinstance(value, bool) and rng.random() < 0.3:
            return value + rng.choice((-1, 1, -value, value, 2**31, 2**63))
        if isinstance(value, str) and not isinstance(value, _Raw) and value and rng.random() < 0.4:
            at = rng.randrange(len(value))
            return value[:at] + rng.choice((*string.printable, "\ud800", "\u2028", "\0", "é")) + value[at + 1 :]
        return _Raw(rng.choice(HUGE) if rng.random() < 0.004 else rng.choice(VALUES))
    if isinstance(value, list):
        at, copy = rng.randrange(len(value)), list(value)
        kind = rng.randrange(6)
        if kind == 0:
            del copy[at]
        elif kind == 1:
            copy.insert(at, rng.choice(value))
        else:
            copy[at] = _mutate_value(rng, value[at])
        return copy
    copy, key = dict(value), rng.choice(list(value))
    kind = rng.randrange(8)
    if kind == 0:
        del copy[key]
    elif kind == 1:
        copy[rng.choice(("x", "", "../x", "a\nb", "\ud800", "__class__", "x" * 999, key + "x"))] = copy.pop(key)
    elif kind == 2:
        copy[key] = value[rng.choice(list(value))]
    else:
        copy[key] = _mutate_value(rng, value[key])
    return copy


def as_json(value):
    """Return a value as JSON text in bytes, with raw values as they are."""
    raw = []

    def mark(value):
        if isinstance(value, _Raw):
            raw.append(value)
            return f"@raw {len(raw) - 1}@"
        if isinstance(value, dict):
            return {key: mark(item) for key, item in value.items()}
        return [mark(item) for item in value] if isinstance(value, list) else value

    marked = mark(value)
    text = json.dumps(marked)
    for number, value in enumerate(raw):
        text = text.replace(f'"@raw {number}@"', value)
    return text.encode("utf-8", "surrogatepass")
