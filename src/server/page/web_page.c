/* GET / and the two files that its page loads. They are the same for everybody and have no secret,
 * so they need no key. The requests that the page sends do. */
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "server/page/web_page.h"

/* Nothing but this server may be loaded or asked, and no other site may frame the page. Text of
 * models is never read as HTML; if it were, it could not run anything. The icon is a data: URL. */
static const char policy[] =
    "Content-Security-Policy: default-src 'self'; img-src 'self' data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; object-src 'none'\r\n"
    "X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n"
    "Cross-Origin-Opener-Policy: same-origin\r\n";

static void send_asset(struct api *api, const struct request_info *info, struct http_conn *conn,
                       const char *type, const struct asset *asset) {
    if (!api->options->has_page) {
        struct api_error error = {0};
        api_error_set(&error, 404, "not_found", NULL, "there is nothing here");
        request_info_reply_error(api, info, conn, &error);
        return;
    }
    char etag[32], head[1024];
    snprintf(etag, sizeof etag, "\"%016llx\"",
             (unsigned long long)XXH3_64bits(asset->bytes, asset->len));
    // A browser asks each time whether its copy is still good: a new server's page is seen at once.
    snprintf(head, sizeof head, "%sETag: %s\r\nCache-Control: no-cache\r\n", policy, etag);
    const char *known = http_request_field(http_conn_request(conn), "if-none-match");
    bool is_known = known && (strstr(known, etag) || strcmp(known, "*") == 0);
    request_info_reply(api, info, conn, is_known ? 304 : 200, type, head, asset->bytes,
                       is_known ? 0 : asset->len);
}

void page_html(struct api *api, const struct request_info *info, struct http_conn *conn,
               const char *name) {
    (void)name;
    send_asset(api, info, conn, "text/html; charset=utf-8", &asset_page_html);
}

void page_css(struct api *api, const struct request_info *info, struct http_conn *conn,
              const char *name) {
    (void)name;
    send_asset(api, info, conn, "text/css; charset=utf-8", &asset_page_css);
}

void page_js(struct api *api, const struct request_info *info, struct http_conn *conn,
             const char *name) {
    (void)name;
    send_asset(api, info, conn, "text/javascript; charset=utf-8", &asset_page_js);
}
