/* The engine room: viewers watch the engine as a stream of events, and pause it if the options
 * allow that. The page at / shows it; doc/serving.md has the form of the events.
 *
 *     engine's thread: engine_room_may_step, before each step -> engine_view, engine_pause
 *     loop: a timer takes what changed 20 times a second, writes it as JSON once, sends it to all
 *
 * A viewer that does not read fast enough misses events and then gets the whole picture again:
 * nothing piles up, and the engine never waits. The timer and the observer exist only while
 * somebody watches. A pause ends when the last viewer leaves. */
#ifndef SERVER_ENGINE_ROOM_H
#define SERVER_ENGINE_ROOM_H

#include <event2/event.h>

#include "server/loop/api_request.h"
#include "server/loop/request_info.h"

enum {
    ROOM_EVENT_MS = 50, // between two events
    ROOM_VIEWERS_MAX = 8,
    ROOM_UNSENT_BYTES_MAX = 64 << 10, // of a viewer that is sent more
    ROOM_STEPS_MAX = 1000, // of one request to step
};

struct engine_room;

extern const struct endpoint endpoint_engine_control;
page_fn page_engine_state, page_engine_events, page_engine_block;

// NULL: no memory. The engine's thread must not run yet.
struct engine_room *engine_room_create(struct api *api, struct event_base *base);
// The engine's thread and the pool have ended; the engine has not. NULL is fine.
void engine_room_destroy(struct engine_room *room);

// The engine's thread, before each step or wait. False: no step may run now.
bool engine_room_may_step(struct engine_room *room, bool has_work);

// ---- the loop's thread; a NULL room is one that is off ----

// The connection is gone; nothing happens if it was no viewer's.
void engine_room_gone(struct engine_room *room, struct http_conn *conn);
// All streams end and the engine goes on.
void engine_room_close(struct engine_room *room);
// Any thread.
bool engine_room_is_paused(struct engine_room *room);

#endif
