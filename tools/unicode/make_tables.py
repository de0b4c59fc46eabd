"""Writes the two tables of Unicode characters.

src/text/unicode/unicode_table.c says which characters are letters, numbers, spaces, word characters and
punctuation, and which ones NFC and NFKC can change. src/text/unicode/unicode_class_table.c has each
character's general category and script.

Letters, numbers, word characters, categories and scripts are those of Unicode 16, like in the regex
engines of Hugging Face tokenizers 0.23. Its NFC, NFKC and Punctuation know only characters up to
Unicode 9, so these properties are taken from the library itself.

Usage: pip install unicodedata2==16.0.0 fonttools==4.56.0 tokenizers==0.23.3
       python3 tools/unicode/make_tables.py src/text
"""
import sys
from pathlib import Path

import unicodedata2 as unicodedata
from fontTools.unicodedata import Scripts, script
from tokenizers import normalizers, pre_tokenizers

SPACES = [*range(0x09, 0x0E), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029,
          0x202F, 0x205F, 0x3000]
# Alphabetic characters of category So, and the join controls.
OTHER_WORD = [*range(0x24B6, 0x24EA), *range(0x1F130, 0x1F14A), *range(0x1F150, 0x1F16A),
              *range(0x1F170, 0x1F18A), 0x200C, 0x200D]
LETTER, NUMBER, SPACE, WORD, NFC_CHECK, NFC_FIRST, PUNCTUATION, NFKC_CHECK = (
    1, 2, 4, 8, 16, 32, 64, 128)

characters = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
nfc = normalizers.NFC().normalize_str
nfkc = normalizers.NFKC().normalize_str
punctuation = pre_tokenizers.Punctuation("isolated").pre_tokenize_str
flags = {c: 0 for c in characters}

for c in characters:
    category = unicodedata.category(chr(c))
    if category[0] == "L":
        flags[c] |= LETTER
    if category[0] == "N":
        flags[c] |= NUMBER
    if category[0] in "LM" or category in ("Nd", "Nl", "Pc"):
        flags[c] |= WORD
for c in SPACES:
    flags[c] |= SPACE
for c in OTHER_WORD:
    flags[c] |= WORD

for c in characters:
    # Marks of a lower class move before U+0345, a mark of class 240.
    reorders = nfc("a\u0345" + chr(c)) != "a\u0345" + chr(c) or c == 0x0345
    if nfc(chr(c)) != chr(c) or reorders:
        flags[c] |= NFC_CHECK
    if nfkc(chr(c)) != chr(c):
        flags[c] |= NFKC_CHECK
    if len(punctuation("\uE000" + chr(c))) == 2:  # after a character of private use
        flags[c] |= PUNCTUATION
    decomposed = unicodedata.normalize("NFD", chr(c))
    if decomposed == chr(c) or nfc(chr(c)) != chr(c):
        continue
    # Undo only the last composition: its first part may be a composed character itself.
    first, second = nfc(decomposed[:-1]), decomposed[-1]
    if len(first) == 1 and nfc(first + second) == chr(c):
        flags[ord(first)] |= NFC_FIRST
        flags[ord(second)] |= NFC_CHECK
        flags[c] |= NFC_FIRST  # a mark of a lower class goes between its parts



def merged(values):
    """[first, last, value] of neighbours with the same value; None and 0 are left out."""
    ranges = []
    for c, value in values:
        if not value:
            continue
        if ranges and ranges[-1][1] == c - 1 and ranges[-1][2] == value:
            ranges[-1][1] = c
        else:
            ranges.append([c, c, value])
    return ranges


def lines(items):
    """Comma-separated items in lines of 100 columns at most."""
    line = "   "
    for item in items:
        if len(line) + len(item) + 2 > 100:
            yield line
            line = "   "
        line += " " + item + ","
    yield line


def write(name, arrays):
    head = ("/* Written by tools/unicode/make_tables.py: do not edit. Unicode %s. */"
            % unicodedata.unidata_version)
    out = [head, '#include "text/unicode/unicode_table.h"', "", "// clang-format off"]
    for kind, array, items in arrays:
        out += ["const %s %s[] = {" % (kind, array), *lines(items), "};"]
    out += ["// clang-format on", ""]
    for _, array, _ in arrays:
        stem, what = array.split("_", 1)
        out.append("const size_t %s_num_%s = sizeof %s / sizeof %s[0];"
                   % (stem, what, array, array))
    Path(sys.argv[1], name).write_text("\n".join(out) + "\n")


write("unicode_table.c", [
    ("struct unicode_range", "unicode_ranges",
     ["{0x%x,0x%x,%d}" % tuple(r) for r in merged(flags.items())]),
])
names = sorted(set(script(chr(c)) for c in characters) - {"Zzzz"})
categories = merged((c, unicodedata.category(chr(c)).replace("Cn", "")) for c in characters)
scripts = merged((c, script(chr(c)).replace("Zzzz", "")) for c in characters)
write("unicode_class_table.c", [
    ("struct unicode_category_range", "unicode_categories",
     ['{0x%x,0x%x,"%s"}' % tuple(r) for r in categories]),
    ("struct unicode_script_range", "unicode_scripts",
     ["{0x%x,0x%x,%d}" % (first, last, names.index(code)) for first, last, code in scripts]),
    ("struct unicode_script_name", "unicode_script_names",
     ['{"%s","%s"}' % (code, Scripts.NAMES[code]) for code in names]),
])
