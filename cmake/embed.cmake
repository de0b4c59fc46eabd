# Writes a C file with the bytes of FILES, one after the other, as `const struct asset NAME`
# (src/server/page/web_page.h).
foreach(file IN LISTS FILES)
  file(READ ${file} content HEX)
  string(APPEND hex "${content}")
endforeach()
string(LENGTH "${hex}" length)
math(EXPR length "${length} / 2")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
file(WRITE ${OUT} "#include \"server/page/web_page.h\"

static const unsigned char bytes[] = {${bytes}};
const struct asset ${NAME} = {bytes, ${length}};
")
