"""Writes src/text/unicode_table.c: which characters are letters, numbers, spaces, word characters,
and which ones NFC can change.

Letters, numbers and word characters are Unicode 16's, as the regex engines inside Hugging Face
tokenizers 0.23 know them. Its NFC knows marks and compositions up to Unicode 9 only, so those two
properties are asked from it. Usage: pip install unicodedata2==16.0.0 tokenizers==0.23.3;
python3 tools/unicode/make_tables.py > src/text/unicode_table.c
"""
import unicodedata2 as unicodedata
from tokenizers import normalizers

SPACES = [*range(0x09, 0x0E), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029,
          0x202F, 0x205F, 0x3000]
# Alphabetic characters of category So, and the join controls.
OTHER_WORD = [*range(0x24B6, 0x24EA), *range(0x1F130, 0x1F14A), *range(0x1F150, 0x1F16A),
              *range(0x1F170, 0x1F18A), 0x200C, 0x200D]
LETTER, NUMBER, SPACE, WORD, NFC_CHECK, NFC_FIRST = 1, 2, 4, 8, 16, 32

characters = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
nfc = normalizers.NFC().normalize_str
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
    # A mark of class 240 lets every mark of a lower class go before it.
    reorders = nfc("a\u0345" + chr(c)) != "a\u0345" + chr(c) or c == 0x0345
    if nfc(chr(c)) != chr(c) or reorders:
        flags[c] |= NFC_CHECK
    decomposed = unicodedata.normalize("NFD", chr(c))
    if decomposed == chr(c) or nfc(chr(c)) != chr(c):
        continue
    # Undo only the last composition: its first part may be a composed character itself.
    first, second = nfc(decomposed[:-1]), decomposed[-1]
    if len(first) == 1 and nfc(first + second) == chr(c):
        flags[ord(first)] |= NFC_FIRST
        flags[ord(second)] |= NFC_CHECK
        flags[c] |= NFC_FIRST  # a mark of a lower class goes between its parts

ranges = []
for c, value in flags.items():
    if not value:
        continue
    if ranges and ranges[-1][1] == c - 1 and ranges[-1][2] == value:
        ranges[-1][1] = c
    else:
        ranges.append([c, c, value])

print("/* Written by tools/unicode/make_tables.py: do not edit. Unicode %s. */"
      % unicodedata.unidata_version)
print('#include "text/unicode_table.h"\n')
print("// clang-format off")
print("const struct unicode_range unicode_ranges[] = {")
line = "   "
for first, last, value in ranges:
    item = " {0x%x,0x%x,%d}," % (first, last, value)
    if len(line) + len(item) > 100:
        print(line)
        line = "   "
    line += item
print(line)
print("};")
print("// clang-format on\n")
print("const size_t unicode_num_ranges = sizeof unicode_ranges / sizeof unicode_ranges[0];")
