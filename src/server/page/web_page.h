/* The page at / for browsers, and the files that are built into the program for it and for
 * /openapi.json: cmake/embed.cmake makes their C. */
#ifndef SERVER_WEB_PAGE_H
#define SERVER_WEB_PAGE_H

#include <stddef.h>

#include "server/loop/request_info.h"

struct asset {
    const unsigned char *bytes; // [len]
    size_t len;
};

extern const struct asset asset_openapi_json;
extern const struct asset asset_page_html, asset_page_css, asset_page_js;

page_fn page_html, page_css, page_js;

#endif
