/* What is answered at once, with GET: health, models, version, metrics. `name` is the rest of the
 * path where the route has one. */
#ifndef SERVER_PAGES_H
#define SERVER_PAGES_H

#include "server/loop/api.h"
#include "server/loop/request_info.h"

typedef void page_fn(struct api *api, const struct request_info *info, struct http_conn *conn,
                     const char *name);
page_fn page_health, page_live, page_ready, page_version, page_metrics, page_models, page_model,
    page_openapi, page_props, page_tokenizer_info;
// engine_room.c
page_fn page_engine_state, page_engine_events, page_engine_block;
// web_page.c
page_fn page_html, page_css, page_js;

#endif
