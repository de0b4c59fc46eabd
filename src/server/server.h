/* The HTTP server over an engine: nanovllm serve. Three kinds of threads: the loop's, which has all
 * sockets and never waits for anything else; a small pool, which reads JSON, renders templates and
 * tokenizes; the engine's, which steps it.
 *
 *     sockets -> loop --request--> pool --nvllm_engine_add_request--> engine
 *                 ^                  |                                   |
 *                 +--- loop_queue <--+-------- tokens of a step ---------+
 */
#ifndef SERVER_SERVER_H
#define SERVER_SERVER_H

#include "base/err.h"
#include "nanovllm.h"
#include "server/loop/server_options.h"

struct server;

// Binds the address, so that a port in use is known before a model is loaded. `options` is
// borrowed.
MUST_USE enum status server_create(struct server **out, const struct server_options *options,
                                   struct err *err);
// Serves until SIGTERM or SIGINT, and until the requests of that time have ended. A second signal
// has its default effect. ERR_DEVICE: the engine is lost. This thread becomes the loop's; no other
// may drive the engine. On return no thread of the server runs, and every request has ended.
MUST_USE enum status server_run(struct server *server, struct nvllm_engine *engine,
                                struct err *err);
void server_destroy(struct server *server); // NULL is fine

#endif
