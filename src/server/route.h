/* From a request to its endpoint: the table of paths, keys, hosts and origins. */
#ifndef SERVER_ROUTE_H
#define SERVER_ROUTE_H

#include "server/loop/api.h"

// The functions of struct http_handler; user_data is the api.
void route_on_head(struct http_conn *conn, void *api);
void route_on_request(struct http_conn *conn, void *api);
void route_on_full(struct http_conn *conn, void *user_data);
void route_on_gone(struct http_conn *conn, void *api);
void route_on_fault(struct http_conn *conn, int status, const char *sentence, void *api);

#endif
