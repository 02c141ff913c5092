# SPDX-License-Identifier: Apache-2.0
"""Texts that tokenizers stumble over, the same in every run: words of many scripts, code, emoji, combining marks, control characters
and zero bytes, cased and folded letters, broken UTF-8, and long runs of one character."""
import random

# First and last letter of scripts, and what stands between words.
SCRIPTS = {
    "latin": (0x61, 0x7a, " "), "latin-1": (0xc0, 0xff, " "), "latin-extended": (0x100, 0x24f, " "), "vietnamese": (0x1ea0, 0x1ef9, " "),
    "greek": (0x391, 0x3c9, " "), "cyrillic": (0x410, 0x44f, " "), "armenian": (0x561, 0x586, " "), "hebrew": (0x5d0, 0x5ea, " "),
    "arabic": (0x621, 0x64a, " "), "devanagari": (0x904, 0x94d, " "), "bengali": (0x985, 0x9cd, " "), "tamil": (0xb85, 0xbcd, " "),
    "thai": (0xe01, 0xe4e, ""), "tibetan": (0xf40, 0xfbc, "\u0f0b"), "georgian": (0x10d0, 0x10f0, " "), "hangul": (0xac00, 0xd7a3, " "),
    "jamo": (0x1100, 0x11ff, " "), "ethiopic": (0x1200, 0x1357, "\u1361"), "khmer": (0x1780, 0x17d2, ""), "hiragana": (0x3041, 0x3096, ""),
    "katakana": (0x30a1, 0x30fa, "\u30fb"), "han": (0x4e00, 0x9fff, "\uff0c"), "half-width": (0xff01, 0xffdc, " "), "gothic": (0x10330, 0x1034a, " "),
    "mathematical": (0x1d400, 0x1d7cb, " "), "han-extension": (0x20000, 0x2a6d6, ""),
}
EMOJI = ["\U0001f642", "\U0001f44d\U0001f3fd", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f1e9\U0001f1ea", "\u2764\ufe0f", "\u261d\U0001f3fb",
         "1\ufe0f\u20e3", "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f", "\U0001f1e9", "\u200d", "\ufe0f"]
MARKS = [0x300, 0x301, 0x308, 0x323, 0x327, 0x345, 0x338, 0x5b7, 0x64b, 0x94d, 0x20d7, 0x3099]
CONTROLS = ["\x00", "\x01", "\x07", "\x08", "\x0b", "\x0c", "\r", "\r\n", "\x1b[0m", "\x7f", "\x85", "\xa0", "\xad", "\u200b", "\u200e", "\u2028", "\u2029",
            "\u2060", "\ufeff", "\ufffd", "\ufffe", "\U0010ffff", "\ue000"]
CASES = ["\u0130", "\u0131", "\u1e9e", "\u00df", "\u017f", "\ufb01", "\ufb03", "\u01c5", "\u03a3", "\u03c2", "\u1fb3", "\u2160", "\u24b6", "\u00bd", "\u00b2",
         "\u3392", "\u33a5", "\uff76\uff9e", "\u1e9b\u0323", "\u2126", "\u212b", "\u0958"]
CODE = ["def f(x: int) -> str:\n    return f\"{x!r:>10}\"\n", "for (int i = 0; i < n; ++i) {\n\ta[i] += b[i];\r\n}\n", "SELECT * FROM t WHERE a='O''Brien' -- x\n",
        "<div class=\"a\">&nbsp;\u2026</div>\n", "0xDEADBEEF 1_000_000 3.14e-10 $HOME/%s\\n", "{\"k\": [null, true, -0.0]}\n", "a->b::c<d>>(e)&&!f||~g ^ h;\n",
        "it's THEY'LL we've I'd 'tis rock'n'roll\n", "# --- ===== *** ~~~~ ////\n", "        deep\n\t\t\ttabs \n  \n\n\n"]


def word(rng):
    first, last, _ = SCRIPTS[rng.choice(tuple(SCRIPTS))]
    return "".join(chr(rng.randint(first, last)) for _ in range(rng.randint(1, 9)))


def sentence(rng):
    first, last, space = SCRIPTS[rng.choice(tuple(SCRIPTS))]
    words = ("".join(chr(rng.randint(first, last)) for _ in range(rng.randint(1, 9))) for _ in range(rng.randint(3, 25)))
    return space.join(words) + rng.choice([". ", "! ", "\u3002", "?\n", "\n\n", " \u061f ", "\u0964 "])


def piece(rng):
    kind = rng.randrange(10)
    if kind < 4:
        return sentence(rng)
    if kind == 4:
        return rng.choice(CODE)
    if kind == 5:
        return "".join(rng.choice(EMOJI) for _ in range(rng.randint(1, 6)))
    if kind == 6:  # a letter under many marks
        return "".join(rng.choice("aeioun\u03b1\u0915\u304b") + "".join(chr(rng.choice(MARKS)) for _ in range(rng.randint(0, 12))) for _ in range(rng.randint(1, 8)))
    if kind == 7:
        return "".join(rng.choice(CONTROLS) + rng.choice(["", " ", "a", "B"]) for _ in range(rng.randint(1, 5)))
    if kind == 8:
        return "".join(rng.choice(CASES) for _ in range(rng.randint(1, 6))) + rng.choice(["", " ", "\n"])
    return rng.choice(["%d" % rng.randrange(10 ** rng.randint(1, 20)), "\u0663\u0664\u0665", " " * rng.randint(1, 30), "\n" * rng.randint(1, 9), word(rng)])


def documents(megabytes, seed=20240601):
    """Valid texts of about so many bytes of UTF-8 together, up to 4,000 characters each."""
    rng = random.Random(seed)
    found, size = [], 0
    while size < megabytes * 1e6:
        text, target = "", rng.choice([3, 30, 300, 3000])
        while len(text) < target:
            text += piece(rng)
        found.append(text[:4000])
        size += len(found[-1].encode())
    return found


def broken(count, seed=7):
    """Bytes that are no UTF-8: characters cut short, continuation bytes alone, overlong forms, surrogates, too large, noise."""
    rng = random.Random(seed)
    wrong = [b"\x80", b"\xff", b"\xfe", b"\xc0\x80", b"\xc3", b"\xe2\x82", b"\xe2", b"\xf0\x9f\x99", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xf8\x88\x80\x80\x80", b"\x00"]
    found = [*wrong]
    while len(found) < count:
        parts = [rng.choice(wrong) if rng.random() < 0.3 else rng.randbytes(rng.randint(1, 4)) if rng.random() < 0.1 else piece(rng)[:20].encode()
                 for _ in range(rng.randint(1, 8))]
        found.append(b"".join(parts))
    return found


def runs(length):
    """One character, or a short pattern, over and over."""
    patterns = ["a", "A", " ", "\n", "\t", "1", "!", ".", "'", "'s", "ab", "a ", " a", "\r\n", "\u00e9", "\u0301", "e\u0301", "\u4e2d", "\u3000", "\u200b", "\U0001f642",
                "\U0001f1e9", "\x00", "\u2581", "_", "<"]
    return [(pattern * (length // len(pattern) + 1))[:length] for pattern in patterns]
