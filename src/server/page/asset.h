/* Files that are built into the program: cmake/embed.cmake makes their C. */
#ifndef SERVER_ASSET_H
#define SERVER_ASSET_H

#include <stddef.h>

struct asset {
    const unsigned char *bytes; // [len]
    size_t len;
};

extern const struct asset asset_openapi_json;
extern const struct asset asset_page_html, asset_page_css, asset_page_js;

#endif
