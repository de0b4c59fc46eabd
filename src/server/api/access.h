/* Who may ask: keys, the name in Host, and what browsers ask before they send a page's request. */
#ifndef SERVER_ACCESS_H
#define SERVER_ACCESS_H

#include "server/loop/api.h"
#include "server/loop/api_error.h"

// `is_open`: a key is not needed. False: error is set.
bool access_check(const struct api *api, const struct http_request *request, bool is_open,
                  struct api_error *error);
// Answers a browser's preflight; false: this is none.
bool access_preflight(struct api *api, struct http_conn *conn);

#endif
