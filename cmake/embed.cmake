# Writes a C file with the bytes of FILE, as `const struct asset NAME` (src/server/asset.h).
file(READ ${FILE} hex HEX)
string(LENGTH "${hex}" length)
math(EXPR length "${length} / 2")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
file(WRITE ${OUT} "#include \"server/asset.h\"

static const unsigned char bytes[] = {${bytes}};
const struct asset ${NAME} = {bytes, ${length}};
")
